// SPDX-License-Identifier: Apache-2.0
#include "cudnn_graph.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::testing::cuda_host {
namespace {

using Index = std::array<std::int64_t, CudnnTensor::rank>;
using Kind = CudnnOperation::Kind;

/// Calls body(index, place) for every element; the last dimension varies fastest.
template <class Body>
void for_each(const Index& dims, const Body& body) {
  std::size_t place = 0;
  Index at = {};
  for (at[0] = 0; at[0] < dims[0]; ++at[0])
    for (at[1] = 0; at[1] < dims[1]; ++at[1])
      for (at[2] = 0; at[2] < dims[2]; ++at[2])
        for (at[3] = 0; at[3] < dims[3]; ++at[3]) body(at, place++);
}
std::size_t place_of(const Index& dims, const Index& at) {
  return static_cast<std::size_t>(((at[0] * dims[1] + at[1]) * dims[2] + at[2]) * dims[3] + at[3]);
}
/// Index of the element of an operand with `dims` that is broadcast to index `at` of a tensor with dimensions `all`.
Index shared(const Index& dims, const Index& all, Index at) {
  for (auto&& [place, whole, own] : ranges::views::zip(at, all, dims)) place /= whole / own;
  return at;
}
std::int64_t offset(const CudnnTensor& tensor, const Index& at) {
  return std::inner_product(at.begin(), at.end(), tensor.strides.begin(), std::int64_t{0});
}

float read(const std::byte* from, cudnnDataType_t type) {
  std::uint16_t bits = 0;
  std::int32_t whole = 0;
  float wide = 0;
  switch (type) {
    case CUDNN_DATA_BFLOAT16: std::memcpy(&bits, from, 2); return static_cast<float>(bf16::from_bits(bits));
    case CUDNN_DATA_HALF: std::memcpy(&bits, from, 2); return static_cast<float>(f16::from_bits(bits));
    case CUDNN_DATA_INT32: std::memcpy(&whole, from, 4); return static_cast<float>(whole);
    default: std::memcpy(&wide, from, 4); return wide;
  }
}
void write(std::byte* to, cudnnDataType_t type, float value) {
  const std::uint16_t bits = type == CUDNN_DATA_BFLOAT16 ? bf16(value).bits : f16(value).bits;
  if (type == CUDNN_DATA_FLOAT)
    std::memcpy(to, &value, 4);
  else
    std::memcpy(to, &bits, 2);
}
/// The value rounded to the type.
float rounded(float value, cudnnDataType_t type) {
  if (type == CUDNN_DATA_BFLOAT16) return static_cast<float>(bf16(value));
  return type == CUDNN_DATA_HALF ? static_cast<float>(f16(value)) : value;
}

/// A pointwise mode that the fake supports.
struct Mode {
  std::size_t operands;
  float (*apply)(float x, float b, float t);  ///< null for CUDNN_POINTWISE_GEN_INDEX, which needs the place
};
const std::map<int, Mode>& modes() {
  static const std::map<int, Mode> all = {
      {CUDNN_POINTWISE_GEN_INDEX, {1, nullptr}},
      {CUDNN_POINTWISE_EXP, {1, [](float x, float, float) { return std::exp(x); }}},
      {CUDNN_POINTWISE_LOG, {1, [](float x, float, float) { return std::log(x); }}},
      {CUDNN_POINTWISE_IDENTITY, {1, [](float x, float, float) { return x; }}},
      {CUDNN_POINTWISE_ADD, {2, [](float x, float b, float) { return x + b; }}},
      {CUDNN_POINTWISE_SUB, {2, [](float x, float b, float) { return x - b; }}},
      {CUDNN_POINTWISE_MUL, {2, [](float x, float b, float) { return x * b; }}},
      {CUDNN_POINTWISE_DIV, {2, [](float x, float b, float) { return x / b; }}},
      {CUDNN_POINTWISE_CMP_GT, {2, [](float x, float b, float) { return float(x > b); }}},
      {CUDNN_POINTWISE_CMP_GE, {2, [](float x, float b, float) { return float(x >= b); }}},
      {CUDNN_POINTWISE_CMP_LT, {2, [](float x, float b, float) { return float(x < b); }}},
      {CUDNN_POINTWISE_CMP_LE, {2, [](float x, float b, float) { return float(x <= b); }}},
      {CUDNN_POINTWISE_LOGICAL_AND, {2, [](float x, float b, float) { return float(x != 0 && b != 0); }}},
      {CUDNN_POINTWISE_BINARY_SELECT, {3, [](float x, float b, float t) { return t != 0 ? x : b; }}},
  };
  return all;
}

/// The elements of a tensor, dense and in the order of its dimensions.
using Values = std::vector<float>;

struct Operand {
  const CudnnTensor& tensor;
  const Values& values;
  float at(const Index& all, const Index& place) const {
    return values[place_of(tensor.dims, shared(tensor.dims, all, place))];
  }
};

Values pointwise(const CudnnOperation& operation, const std::vector<Operand>& in, const CudnnTensor& out) {
  Values made(out.count());
  const auto apply = modes().at(operation.mode).apply;
  for_each(out.dims, [&](const Index& at, std::size_t place) {
    if (apply == nullptr)
      made[place] = static_cast<float>(at[static_cast<std::size_t>(operation.axis)]);
    else
      made[place] = apply(in[0].at(out.dims, at), in.size() > 1 ? in[1].at(out.dims, at) : 0,
                          in.size() > 2 ? in[2].at(out.dims, at) : 0);
  });
  return made;
}

Values reduction(const CudnnOperation& operation, const Operand& in, const CudnnTensor& out) {
  const bool adds = operation.mode == CUDNN_REDUCE_TENSOR_ADD;
  std::vector<double> sums(out.count(), adds ? 0.0 : -std::numeric_limits<double>::infinity());
  for_each(in.tensor.dims, [&](const Index& at, std::size_t place) {
    double& sum = sums[place_of(out.dims, shared(out.dims, in.tensor.dims, at))];
    const auto value = static_cast<double>(in.values[place]);
    sum = adds ? sum + value : std::max(sum, value);
  });
  return Values(sums.begin(), sums.end());
}

/// The same memory, viewed with another tensor description.
Values reshape(const Operand& in, const CudnnTensor& out) {
  std::vector<float> memory(static_cast<std::size_t>(std::max(in.tensor.bytes(), out.bytes()) / out.width() + 1));
  for_each(in.tensor.dims, [&](const Index& at, std::size_t place) {
    memory[static_cast<std::size_t>(offset(in.tensor, at))] = in.values[place];
  });
  Values made(out.count());
  for_each(out.dims, [&](const Index& at, std::size_t place) {
    made[place] = memory[static_cast<std::size_t>(offset(out, at))];
  });
  return made;
}

/// A block [begin, end) of the inner dimension (keys) of a product.
struct Part {
  std::int64_t begin, end;
};
std::vector<Part> parts_in_any_order(std::int64_t inner) {
  static std::minstd_rand random;  // never reseeded, so that repeated runs differ
  std::vector<Part> parts;
  for (std::int64_t begin = 0; begin < inner; begin += 16) parts.push_back({begin, std::min(begin + 16, inner)});
  std::shuffle(parts.begin(), parts.end(), random);
  return parts;
}

Values matmul(const Operand& a, const Operand& b, const CudnnTensor& out, bool in_any_order) {
  const std::int64_t inner = a.tensor.dims[3], columns = out.dims[3];
  const std::vector<Part> parts = in_any_order ? parts_in_any_order(inner) : std::vector<Part>{{0, inner}};
  Values made(out.count());
  std::vector<double> row(static_cast<std::size_t>(columns));
  for_each({out.dims[0], out.dims[1], out.dims[2], 1}, [&](const Index& at, std::size_t place) {
    Index of_a = at, of_b = at;
    for (const std::size_t d : {0u, 1u}) {
      of_a[d] /= out.dims[d] / a.tensor.dims[d];
      of_b[d] /= out.dims[d] / b.tensor.dims[d];
    }
    of_b[2] = 0;
    const float* const left = &a.values[place_of(a.tensor.dims, of_a)];
    const float* const right = &b.values[place_of(b.tensor.dims, of_b)];
    float* const to = &made[place * static_cast<std::size_t>(columns)];
    for (const Part& part : parts) {
      std::fill(row.begin(), row.end(), 0.0);
      for (std::int64_t k = part.begin; k < part.end; ++k)
        for (std::int64_t j = 0; j < columns; ++j)
          row[static_cast<std::size_t>(j)] +=
              static_cast<double>(left[k]) * static_cast<double>(right[k * columns + j]);
      for (std::int64_t j = 0; j < columns; ++j) to[j] += static_cast<float>(row[static_cast<std::size_t>(j)]);
    }
  });
  return made;
}

bool divides(std::int64_t part, std::int64_t whole) { return part > 0 && whole % part == 0; }

}  // namespace

std::int64_t CudnnTensor::width() const {
  return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : 4;
}
std::int64_t CudnnTensor::bytes() const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < rank; ++d) last += (dims[d] - 1) * strides[d];
  return (last + 1) * width();
}

std::string CudnnGraph::add(const CudnnTensor& tensor) {
  const auto [known, added] = tensors_.emplace(tensor.uid, tensor);
  return added || known->second == tensor ? "" : message("tensor ", tensor.uid, " is described in two ways");
}

bool CudnnGraph::is_made(std::int64_t uid) const {
  return std::any_of(operations_.begin(), operations_.end(), [&](const auto& o) { return o.output == uid; });
}

std::string CudnnGraph::add(const CudnnOperation& operation) {
  if (is_made(operation.output)) return message("two operations write tensor ", operation.output);
  const CudnnTensor& output = tensor(operation.output);
  if (output.is_by_value) return "an operation writes a tensor by value";
  if (!output.is_virtual && output.type != CUDNN_DATA_FLOAT && output.width() != 2)
    return message("tensor ", output.uid, " is written in a type that the double does not know");
  if (std::string problem = shapes_problem(operation); !problem.empty()) return problem;
  operations_.push_back(operation);
  return "";
}

std::string CudnnGraph::shapes_problem(const CudnnOperation& operation) const {
  const CudnnTensor& out = tensor(operation.output);
  const CudnnTensor& in = tensor(operation.inputs[0]);
  const auto is_shared = [](const CudnnTensor& part, const CudnnTensor& whole, std::size_t dims) {
    for (std::size_t d = 0; d < dims; ++d)
      if (!divides(part.dims[d], whole.dims[d])) return false;
    return true;
  };
  switch (operation.kind) {
    case Kind::pointwise:
      if (modes().count(operation.mode) == 0 || operation.inputs.size() != modes().at(operation.mode).operands)
        return message("pointwise mode ", operation.mode, " of ", operation.inputs.size(), " operands");
      for (const std::int64_t uid : operation.inputs)
        if (!is_shared(tensor(uid), out, CudnnTensor::rank)) return "a pointwise operand is of another shape";
      return operation.axis >= 0 && operation.axis < 4 ? "" : "an index along no axis";
    case Kind::reduction:
      if (operation.mode != CUDNN_REDUCE_TENSOR_ADD && operation.mode != CUDNN_REDUCE_TENSOR_MAX)
        return message("reduction ", operation.mode, ", which the double does not know");
      return is_shared(out, in, CudnnTensor::rank) ? "" : "what is reduced is no multiple of the result";
    case Kind::reshape: return in.count() == out.count() ? "" : "a reshape to another number of elements";
    case Kind::matmul: break;
  }
  const CudnnTensor& second = tensor(operation.inputs[1]);
  if (!is_shared(in, out, 2) || !is_shared(second, out, 2)) return "a product's batches differ";
  const bool fits = in.dims[3] == second.dims[2] && in.dims[2] == out.dims[2] && second.dims[3] == out.dims[3];
  return fits ? "" : "a product's sizes do not go together";
}

std::string CudnnGraph::finish() {
  std::vector<CudnnOperation> sorted;
  std::vector<std::int64_t> ready;
  for (const auto& [uid, tensor] : tensors_) {
    if (is_made(uid)) continue;
    if (tensor.is_virtual) return message("virtual tensor ", uid, " is written by no operation");
    ready.push_back(uid);
  }
  const auto is_ready = [&](std::int64_t uid) { return std::find(ready.begin(), ready.end(), uid) != ready.end(); };
  while (!operations_.empty()) {
    const auto next = std::find_if(operations_.begin(), operations_.end(), [&](const CudnnOperation& o) {
      return std::all_of(o.inputs.begin(), o.inputs.end(), is_ready);
    });
    if (next == operations_.end()) return "the operations wait for each other";
    ready.push_back(next->output);
    sorted.push_back(std::move(*next));
    operations_.erase(next);
  }
  operations_ = std::move(sorted);
  return operations_.empty() ? "a graph without operations" : "";
}

bool CudnnGraph::is_added_in_any_order(const CudnnOperation& operation) const {
  if (operation.kind != Kind::matmul) return false;
  const CudnnTensor& out = tensor(operation.output);
  return !out.is_virtual && out.type == CUDNN_DATA_FLOAT;
}
bool CudnnGraph::adds_in_any_order() const {
  return std::any_of(operations_.begin(), operations_.end(), [&](const auto& o) { return is_added_in_any_order(o); });
}

std::int64_t CudnnGraph::workspace() const {
  const auto whole = [](std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile * tile; };
  std::int64_t bytes = 256;  // to align the beginning
  const bool backward = std::any_of(operations_.begin(), operations_.end(),
                                    [](const CudnnOperation& o) { return o.kind == Kind::reshape; });
  if (!backward) return bytes;
  for (const CudnnOperation& o : operations_) {
    const CudnnTensor& out = tensor(o.output);
    // dS is stored if dQ is summed in order: its matmul then reads the dS that all blocks have written.
    if (o.kind == Kind::matmul && !out.is_virtual && o.inputs.size() == 2 && tensor(o.inputs[0]).is_virtual &&
        out.type != CUDNN_DATA_FLOAT && tensor(o.inputs[0]).strides[3] == 1) {
      const CudnnTensor& scores = tensor(o.inputs[0]);
      bytes += 2 * scores.dims[0] * scores.dims[1] * whole(scores.dims[2], 64) * whole(scores.dims[3], 128);
    }
    // Gradients of every query head, before they are summed over heads that share keys.
    if (o.kind == Kind::reduction && o.mode == CUDNN_REDUCE_TENSOR_ADD && out.dims[3] > 1)
      bytes += static_cast<std::int64_t>(tensor(o.inputs[0]).count()) * 2;
  }
  return bytes;
}

void CudnnGraph::run(const CudnnAddresses& addresses, const std::map<std::int64_t, float>& scalars) const {
  std::map<std::int64_t, Values> values;
  for (const auto& [uid, tensor] : tensors_) {
    if (is_made(uid)) continue;
    Values& own = values[uid];
    own.resize(tensor.count());
    for_each(tensor.dims, [&, &t = tensor, id = uid](const Index& at, std::size_t place) {
      own[place] = t.is_by_value ? scalars.at(id) : read(addresses.at(id) + offset(t, at) * t.width(), t.type);
    });
  }
  for (const CudnnOperation& operation : operations_) {
    const CudnnTensor& out = tensor(operation.output);
    std::vector<Operand> in;
    for (const std::int64_t uid : operation.inputs) in.push_back({tensor(uid), values.at(uid)});
    Values made;
    switch (operation.kind) {
      case Kind::pointwise: made = pointwise(operation, in, out); break;
      case Kind::reduction: made = reduction(operation, in[0], out); break;
      case Kind::reshape: made = reshape(in[0], out); break;
      case Kind::matmul: made = matmul(in[0], in[1], out, is_added_in_any_order(operation)); break;
    }
    for (float& value : made) value = rounded(value, out.type);
    if (!out.is_virtual)
      for_each(out.dims, [&](const Index& at, std::size_t place) {
        write(addresses.at(out.uid) + offset(out, at) * out.width(), out.type, made[place]);
      });
    values[out.uid] = std::move(made);
  }
}

}  // namespace fsdp::testing::cuda_host
