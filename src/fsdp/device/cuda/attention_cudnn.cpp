// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention by cuDNN's graphs (scaled dot-product attention, forward and deterministic backward). A graph is built
/// once per problem and strides, which takes about a second, and then runs on any addresses.
///
/// cuDNN's statistic of a row is the natural log sum exp of its scaled scores, like Tessera's lse. Therefore forward
/// may run on cuDNN and backward on Tessera's kernels, or the reverse. cuDNN has a choice of determinism only in
/// backward.
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // excludes its copy of nlohmann/json, which Tessera uses elsewhere
#include <cudnn_frontend.h>

#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <tessera/fsdp/device/cuda.hpp>

#include "attention_cudnn.hpp"
#include "cache.hpp"
#include "scratch.hpp"

namespace fsdp::device {
namespace {

namespace graphs = cudnn_frontend::graph;
using cuda::AttentionCall;
using Described = std::shared_ptr<graphs::Tensor_attributes>;

/// Ids of a graph's tensors, from 1 on.
constexpr std::int64_t uid_of(std::size_t matrix) { return static_cast<std::int64_t>(matrix) + 1; }
constexpr std::int64_t lse_uid = 100;
constexpr std::int64_t workspace_alignment = 256;

cudnn_frontend::DataType_t library_type(DType dtype) {
  return dtype == DType::bf16 ? cudnn_frontend::DataType_t::BFLOAT16 : cudnn_frontend::DataType_t::HALF;
}
std::vector<std::int64_t> list(const std::array<std::int64_t, 4>& numbers) { return {numbers.begin(), numbers.end()}; }

/// The cache key of a graph: everything that the graph depends on. There are few graphs, since layers share them.
struct Key {
  std::int64_t sequences, length, heads, kv_heads, head_dim;
  DType dtype;
  bool backward;
  std::array<std::int64_t, 8> row_strides;
  auto operator<=>(const Key&) const = default;
};
Key key_of(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  Key key{s.sequences, s.sequence_length, s.heads, s.kv_heads, s.head_dim, call.dtype, call.backward(), {}};
  for (std::size_t i = 0; i < call.count(); ++i) key.row_strides[i] = call.matrices[i].row_stride;
  return key;
}

/// A graph that cuDNN has planned, or the reason why it could not.
struct Planned {
  std::unique_ptr<graphs::Graph> graph;
  std::string refusal;
};

Described input(graphs::Graph& graph, const AttentionCall& call, AttentionCall::Matrix matrix) {
  return graph.tensor(graphs::Tensor_attributes()
                          .set_uid(uid_of(matrix))
                          .set_dim(list(call.dims(matrix)))
                          .set_stride(list(call.strides(matrix))));
}
void output(const Described& made, const AttentionCall& call, AttentionCall::Matrix matrix) {
  made->set_output(true)
      .set_uid(uid_of(matrix))
      .set_dim(list(call.dims(matrix)))
      .set_stride(list(call.strides(matrix)));
}
graphs::Tensor_attributes& describe_lse(graphs::Tensor_attributes& lse, const AttentionCall& call) {
  return lse.set_uid(lse_uid)
      .set_data_type(cudnn_frontend::DataType_t::FLOAT)
      .set_dim(list(call.lse_dims()))
      .set_stride(list(call.lse_strides()));
}

void add_forward(graphs::Graph& graph, const AttentionCall& call, float scale) {
  using C = AttentionCall;
  const auto wish = graphs::SDPA_attributes()
                        .set_name("attention")
                        .set_generate_stats(true)
                        .set_causal_mask(true)
                        .set_attn_scale(scale);
  const auto [out, lse] =
      graph.sdpa(input(graph, call, C::q), input(graph, call, C::k), input(graph, call, C::v), wish);
  output(out, call, C::out);
  describe_lse(*lse, call).set_output(true);
}

void add_backward(graphs::Graph& graph, const AttentionCall& call, float scale) {
  using C = AttentionCall;
  const auto wish = graphs::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_causal_mask(true)
                        .set_attn_scale(scale)
                        .set_deterministic_algorithm(true);
  graphs::Tensor_attributes lse;
  const auto [dq, dk, dv] = graph.sdpa_backward(
      input(graph, call, C::q), input(graph, call, C::k), input(graph, call, C::v), input(graph, call, C::out),
      input(graph, call, C::dout), graph.tensor(describe_lse(lse, call)), wish);
  output(dq, call, C::dq);
  output(dk, call, C::dk);
  output(dv, call, C::dv);
}

/// Returns the bytes of workspace after its start is aligned by `aligned`, below.
std::int64_t workspace_of(const AttentionCall& part) {
  return cuda::cudnn_scratch(part.shape, part.dtype, part.backward()) - workspace_alignment;
}

/// In cuDNN up to 9.15.0, backward is faulty for lengths that are not multiples of a tile of 128 keys. cudnn-frontend
/// 1.14 does not handle this. Later versions mask the elements beyond the length, for which they copy data from
/// pageable memory in every run; this blocks the host.
constexpr std::size_t last_with_fault = 91500;
constexpr std::int64_t keys_of_tile = 128;

/// Describes the call to cuDNN, which then plans it.
Planned plan_or_throw(cudnnHandle_t library, const AttentionCall& call) {
  if (call.backward() && call.shape.sequence_length % keys_of_tile != 0 && cudnnGetVersion() <= last_with_fault)
    return {nullptr, "up to version 9.15.0 its backward takes only lengths that are multiples of 128"};
  Planned planned{std::make_unique<graphs::Graph>(), {}};
  graphs::Graph& graph = *planned.graph;
  graph.set_io_data_type(library_type(call.dtype))
      .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
      .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT);
  const float scale = 1.0f / std::sqrt(static_cast<float>(call.shape.head_dim));
  if (call.backward())
    add_backward(graph, call, scale);
  else
    add_forward(graph, call, scale);
  if (auto built = graph.build(library, {cudnn_frontend::HeurMode_t::A}); built.is_bad())
    planned.refusal = built.get_message();
  else if (const std::int64_t wanted = graph.get_workspace_size(), held = workspace_of(call); wanted > held)
    planned.refusal = message("it asks for ", wanted, " bytes of scratch, and plans hold ", held);
  return planned;
}

/// Catches cudnn-frontend's errors. It returns some and throws others; version 1.14 throws more than later versions.
Planned plan(cudnnHandle_t library, const AttentionCall& call) {
  try {
    return plan_or_throw(library, call);
  } catch (const std::exception& error) {
    return {nullptr, error.what()};
  }
}

}  // namespace

struct cuda::AttentionGraphs {
  explicit AttentionGraphs(const Cuda::Stream& stream) {
    cudnnStatus_t status = cudnnCreate(&library);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnSetStream(library, static_cast<cudaStream_t>(stream.native()));
    if (status != CUDNN_STATUS_SUCCESS) refusal = message("it does not start: ", cudnnGetErrorString(status));
  }
  AttentionGraphs(const AttentionGraphs&) = delete;
  AttentionGraphs& operator=(const AttentionGraphs&) = delete;
  ~AttentionGraphs() {
    planned.clear();
    if (library != nullptr) cudnnDestroy(library);
  }

  cudnnHandle_t library = nullptr;
  std::string refusal;  ///< reason why cuDNN cannot be used at all; else empty
  std::map<Key, Planned> planned;
};

namespace {

/// Returns false, so that Tessera's kernels are used. Throws InputError if TESSERA_CUDA_ATTENTION is cudnn.
bool refuse(const Cuda::Stream& stream, std::string_view why) {
  require<InputError>(stream.cache().attention_by != cuda::AttentionBy::cudnn,
                      "TESSERA_CUDA_ATTENTION is cudnn, and cuDNN does not take this attention: ", why,
                      "; unset it, so that our kernels do what cuDNN does not");
  return false;
}

/// Returns the workspace address for cuDNN, aligned for the wide accesses of its kernels. The arena aligns only to 64
/// bytes.
std::uint8_t* aligned(const Tensor<std::uint8_t>& workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
  return workspace.data() + (workspace_alignment - address % workspace_alignment) % workspace_alignment;
}

void run(cudnnHandle_t library, const graphs::Graph& graph, const AttentionCall& call, std::uint8_t* workspace) {
  std::unordered_map<std::int64_t, void*> addresses = {{lse_uid, call.lse}};
  for (std::size_t i = 0; i < call.count(); ++i) addresses[uid_of(i)] = call.matrices[i].data;
  const auto require_queued = [](bool queued, const std::string& why) {
    require<Error>(queued, "cuDNN, queueing attention: ", why);
  };
  try {
    auto queued = graph.execute(library, addresses, workspace);
    require_queued(queued.is_good(), queued.get_message());
  } catch (const cudnn_frontend::cudnnException& error) {
    require_queued(false, error.what());
  }
}

}  // namespace

bool cuda::attention_through_cudnn(const Cuda::Stream& stream, const AttentionCall& call,
                                   Tensor<std::uint8_t> workspace) {
  Cuda::Stream::Cache& cache = stream.cache();
  if (stream.plain() || cache.attention_by == AttentionBy::own || call.shape.tokens() == 0) return false;
  if (const char* const why = why_not_cudnn(call); why != nullptr) return refuse(stream, why);
  if (!cache.attention) cache.attention = std::make_shared<AttentionGraphs>(stream);
  AttentionGraphs& known = *cache.attention;
  if (!known.refusal.empty()) return refuse(stream, known.refusal);

  const std::vector<AttentionCall> parts = parts_of(call, cudnn_part(call.shape, call.backward()));
  const auto found = known.planned.find(key_of(parts[0]));
  const Planned& planned = found != known.planned.end()
                               ? found->second
                               : known.planned.emplace(key_of(parts[0]), plan(known.library, parts[0])).first->second;
  if (!planned.refusal.empty()) return refuse(stream, planned.refusal);
  for (const AttentionCall& part : parts) run(known.library, *planned.graph, part, aligned(workspace));
  return true;
}

}  // namespace fsdp::device
