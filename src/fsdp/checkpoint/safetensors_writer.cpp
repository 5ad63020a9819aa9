// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/safetensors.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/parameter.hpp>

#include "manifest.hpp"
#include "posix.hpp"

namespace fsdp::checkpoint {

namespace {

const char* stored_name(DType dtype) {
  require(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::u8,
          "safetensors: tensors are written as f32, bf16, f16 or u8, not as ", name_of(dtype));
  return dtype == DType::f32 ? "F32" : dtype == DType::bf16 ? "BF16" : dtype == DType::f16 ? "F16" : "U8";
}

template <class T>
std::vector<T> rounded(std::span<const float> values, const std::filesystem::path& path, const std::string& tensor) {
  std::vector<T> list;
  list.reserve(values.size());
  for (const float value : values) {
    list.push_back(T(value));
    require<InputError>(std::isfinite(static_cast<float>(list.back())) || !std::isfinite(value), path.string(),
                        ": tensor \"", tensor, "\" holds ", value, ", too large for ", name_of(dtype_of<T>()),
                        dtype_of<T>() == DType::f16 ? "; take bf16 or f32" : "; take f32");
  }
  return list;
}

}  // namespace

FilePlan plan_file(std::vector<NamedShape> tensors, const std::map<std::string, std::string>& metadata, DType dtype) {
  std::vector<DType> dtypes(tensors.size(), dtype);
  return plan_file(std::move(tensors), metadata, std::move(dtypes));
}

FilePlan plan_file(std::vector<NamedShape> tensors, const std::map<std::string, std::string>& metadata,
                   std::vector<DType> dtypes) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) -> const std::string& { return tensors[i].name; });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::int64_t> offsets(tensors.size());
  std::int64_t end = 0;
  std::string text = header.dump();
  text.pop_back();
  for (std::size_t place = 0; place < order.size(); ++place) {
    const NamedShape& tensor = tensors[order[place]];
    require_tensor_name(tensor.name, "safetensors");
    require<InputError>(tensor.shape.size() <= most_rank, "safetensors: tensor \"", tensor.name, "\" has ",
                        tensor.shape.size(), " extents; at most ", most_rank, " can be read");
    require<InputError>(place == 0 || tensors[order[place - 1]].name != tensor.name,
                        "safetensors: two tensors are called \"", tensor.name, "\"");
    const std::int64_t begin = end;
    const DType dtype = dtypes[order[place]];
    end = checked_add(end, checked_multiply(elements_of(tensor.shape), size_of(dtype)));
    offsets[order[place]] = begin;
    const nlohmann::ordered_json entry = {
        {"dtype", stored_name(dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    text += (text.size() > 1 ? "," : "") + nlohmann::json(tensor.name).dump() + ":" + entry.dump();
  }
  text += '}';
  text.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.size()), 8)), ' ');
  require<InputError>(std::ssize(text) <= most_header_bytes, "safetensors: a header of ", text.size(),
                      " bytes is too long to be read");

  const std::uint64_t length = text.size();
  FilePlan plan{.header = std::string(sizeof length, '\0') + text,
                .tensors = std::move(tensors),
                .dtypes = std::move(dtypes),
                .offsets = offsets};
  std::memcpy(plan.header.data(), &length, sizeof length);
  for (std::int64_t& offset : plan.offsets) offset += static_cast<std::int64_t>(plan.header.size());
  plan.file_bytes = checked_add(end, static_cast<std::int64_t>(plan.header.size()));
  return plan;
}

SharedFile::SharedFile(std::filesystem::path path, FilePlan plan, FileDescriptor file)
    : path_(std::move(path)),
      plan_(std::move(plan)),
      file_(std::move(file)),
      sums_(std::make_shared<WrittenSums>(plan_.file_bytes)) {}

SharedFile SharedFile::create(const std::filesystem::path& path, FilePlan plan) {
  FileDescriptor file = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, "created");
  do errno = ::posix_fallocate(file.get(), 0, plan.file_bytes);
  while (errno == EINTR);
  if (errno != 0) throw_errno(path, message("given its ", plan.file_bytes, " bytes (is the disk full?)"));
  write_all(file, path, plan.header.data(), plan.header.size(), 0);
  SharedFile shared(path, std::move(plan), std::move(file));
  shared.sums_->add(0, std::as_bytes(std::span(shared.plan_.header)));
  return shared;
}

SharedFile SharedFile::join(const std::filesystem::path& path, FilePlan plan) {
  FileDescriptor file =
      open_file(path, O_WRONLY | O_NOFOLLOW, "opened for writing (do all ranks see the same directory?)");
  struct stat status {};
  require<InputError>(::fstat(file.get(), &status) == 0 && status.st_size == plan.file_bytes, path.string(), ": has ",
                      status.st_size, " bytes where ", plan.file_bytes,
                      " were planned; do all ranks see the same file?");
  return {path, std::move(plan), std::move(file)};
}

void SharedFile::write_range(std::size_t tensor, std::int64_t begin, std::span<const float> values) const {
  require(tensor < plan_.tensors.size() && begin >= 0, path_.string(), ": no such tensor or range");
  const std::int64_t elements = elements_of(plan_.tensors[tensor].shape);
  require(begin <= elements && static_cast<std::int64_t>(values.size()) <= elements - begin, path_.string(),
          ": range of ", values.size(), " elements from ", begin, " is outside tensor \"", plan_.tensors[tensor].name,
          "\" of ", elements);
  const DType dtype = plan_.dtypes[tensor];
  const auto write = [&](std::span<const std::byte> bytes) { write_bytes(tensor, begin * size_of(dtype), bytes); };
  const auto write_as = [&]<class T>(T) {
    const std::vector<T> stored = rounded<T>(values, path_, plan_.tensors[tensor].name);
    write(std::as_bytes(std::span(stored)));
  };
  require(dtype != DType::u8, path_.string(), ": tensor \"", plan_.tensors[tensor].name, "\" is written as bytes");
  if (dtype == DType::f32)
    write(std::as_bytes(values));
  else if (dtype == DType::bf16)
    write_as(bf16());
  else
    write_as(f16());
}

void SharedFile::write_bytes(std::size_t tensor, std::int64_t first, std::span<const std::byte> bytes) const {
  require(tensor < plan_.tensors.size() && first >= 0, path_.string(), ": no such tensor or range");
  const std::int64_t all = elements_of(plan_.tensors[tensor].shape) * size_of(plan_.dtypes[tensor]);
  require(first <= all && std::ssize(bytes) <= all - first, path_.string(), ": range of ", bytes.size(), " bytes from ",
          first, " is outside tensor \"", plan_.tensors[tensor].name, "\" of ", all);
  const std::int64_t offset = plan_.offsets[tensor] + first;
  write_all(file_, path_, bytes.data(), bytes.size(), offset);
  sums_->add(offset, bytes);
}

void SharedFile::finish() {
  sync_file(file_, path_);
  close_file(file_, path_);
}

}  // namespace fsdp::checkpoint
