// SPDX-License-Identifier: Apache-2.0
/// Runs the cases whose names begin with one of the prefixes in --gtest_filter=PREFIX*:PREFIX*.... Returns status 1 if
/// a case failed.
#include "gtest/gtest.h"

#include <exception>
#include <string_view>

namespace {

/// Whether the name begins with one of the filter's prefixes.
bool is_asked_for(std::string_view name, std::string_view filter) {
  while (true) {
    const std::size_t end = filter.find(':');
    std::string_view prefix = filter.substr(0, end);
    if (prefix.ends_with('*')) prefix.remove_suffix(1);
    if (name.starts_with(prefix)) return true;
    if (end == std::string_view::npos) return false;
    filter.remove_prefix(end + 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace testing::bare;
  std::string_view filter;
  constexpr std::string_view flag = "--gtest_filter=";
  for (int i = 1; i < argc; ++i)
    if (const std::string_view argument = argv[i]; argument.starts_with(flag)) filter = argument.substr(flag.size());
  int failed = 0, ran = 0;
  for (const Case& one : cases()) {
    if (!is_asked_for(one.name, filter)) continue;
    ++ran;
    const int before = failures;
    skipped.clear();
    try {
      one.body();
    } catch (const std::exception& error) {
      ++failures;
      std::cout << error.what() << "\n";
    }
    const bool ok = failures == before;
    failed += ok ? 0 : 1;
    std::cout << (!ok               ? "[  FAILED  ] "
                  : skipped.empty() ? "[       OK ] "
                                    : "[  SKIPPED ] ")
              << one.name << (skipped.empty() ? "" : ": " + skipped) << std::endl;
  }
  std::cout << "[==========] " << ran << " cases ran." << std::endl;
  return failed > 0 ? 1 : 0;
}
