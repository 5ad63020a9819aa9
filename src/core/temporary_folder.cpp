// SPDX-License-Identifier: Apache-2.0
#include <fsdp/core/temporary_folder.hpp>

#include <stdlib.h>

#include <system_error>

#include <fsdp/core/environment.hpp>
#include <fsdp/core/file.hpp>

namespace fsdp {

std::filesystem::path temporary_directory() {
  const std::string_view named = environment("TMPDIR");
  return named.empty() ? std::filesystem::path("/tmp") : std::filesystem::path(named);
}

TemporaryFolder::TemporaryFolder(const std::filesystem::path& parent, const std::string& name) {
  std::string made = (parent / (name + "-XXXXXX")).string();  // which mkdtemp replaces
  if (::mkdtemp(made.data()) == nullptr) throw_errno(made, "created");
  path_ = made;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace fsdp
