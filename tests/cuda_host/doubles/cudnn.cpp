// SPDX-License-Identifier: Apache-2.0
/// @file
/// A fake of cuDNN's backend API: descriptors, the heuristic, plans, execution. cudnn_graph.cpp computes the graphs.
///
/// Rules: "cuDNN Backend API" of cuDNN 9. A descriptor is set up, finalized, and then read; descriptors that it refers
/// to must be finalized before it. The code of a plan is unloaded with the plan, so a captured graph must keep the
/// plan.
#include "cudnn.hpp"

#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "cudnn_descriptor.hpp"
#include "machine.hpp"

namespace {

using fsdp::message;
using namespace fsdp::testing::cuda_host;

/// The object behind a cudnnHandle_t.
struct Library {
  int device = 0;
  cudaStream_t stream = nullptr;
};
Library& ours(cudnnHandle_t handle) { return *reinterpret_cast<Library*>(handle); }

thread_local std::string last_error;

cudnnStatus_t refuse(cudnnStatus_t status, const std::string& why) {
  last_error = why;
  machine().problem("cuDNN: " + why);
  return status;
}

/// Begins a call. Returns an error from it if a test makes this call fail.
#define BEGIN(context)                                     \
  if (machine().enter(__func__, context) != cudaSuccess) { \
    last_error = "an internal error of the double";        \
    return CUDNN_STATUS_INTERNAL_ERROR;                    \
  }

/// Descriptors that were created and not yet destroyed.
std::set<const void*>& living() {
  static auto* const all = new std::set<const void*>;
  return *all;
}
/// Returns null and reports a problem if the handle is not a descriptor. For a null handle, it reports no problem: the
/// caller sees the status.
Descriptor* find(cudnnBackendDescriptor_t handle) {
  if (handle == nullptr) return nullptr;
  const std::lock_guard lock(machine().mutex);
  if (living().count(handle) > 0) return static_cast<Shared*>(handle)->get();
  refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor that was destroyed, or never created");
  return nullptr;
}

// ---- Finalizing

cudnnStatus_t finalize_graph(Descriptor& own) {
  const auto graph = std::make_shared<CudnnGraph>();
  for (const Shared& operation : own.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).parts) {
    if (!is_operation(operation->type)) return refuse(CUDNN_STATUS_BAD_PARAM, "a graph of no operation");
    if (std::string problem = add(*graph, *operation); !problem.empty()) return refuse(CUDNN_STATUS_BAD_PARAM, problem);
  }
  if (std::string problem = graph->finish(); !problem.empty()) return refuse(CUDNN_STATUS_BAD_PARAM, problem);
  own.graph = graph;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t finalize_plan(Descriptor& own) {
  if (machine().capture_of_thread())  // making a plan loads code
    return refuse(CUDNN_STATUS_INTERNAL_ERROR, "a plan is made by a thread that captures a graph");
  own.graph = own.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph;
  return own.graph ? CUDNN_STATUS_SUCCESS : refuse(CUDNN_STATUS_BAD_PARAM, "a plan for no graph");
}
cudnnStatus_t finalize_pack(const Descriptor& own) {
  const auto uids = own.list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  if (uids.size() != own.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
    return refuse(CUDNN_STATUS_BAD_PARAM, "as many addresses as tensors are needed");
  if (std::set<std::int64_t>(uids.begin(), uids.end()).size() != uids.size())
    return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "a tensor has two addresses");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(Descriptor& own) {
  for (const Rule& rule : rules().at(own.type))
    if (rule.needed && !own.has(rule.name))
      return refuse(CUDNN_STATUS_BAD_PARAM, message("descriptor ", static_cast<int>(own.type), " lacks attribute ",
                                                    static_cast<int>(rule.name)));
  CudnnTensor tensor;
  switch (own.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      if (std::string problem = decode(own, tensor); !problem.empty()) return refuse(CUDNN_STATUS_BAD_PARAM, problem);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(own);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      own.graph = own.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(own);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return finalize_pack(own);
    default: return CUDNN_STATUS_SUCCESS;
  }
}

// ---- Attributes of finalized descriptors

std::int64_t workspace_of(const Descriptor& own) { return own.graph->workspace() + CudnnDouble::more_workspace; }

/// Copies as many of `values` as there is room for.
template <class T>
cudnnStatus_t give(const std::vector<T>& values, std::int64_t room, std::int64_t* count, void* to) {
  if (count != nullptr) *count = static_cast<std::int64_t>(values.size());
  const std::size_t given = std::min(values.size(), static_cast<std::size_t>(room));
  if (to != nullptr && given > 0) std::memcpy(to, values.data(), given * sizeof(T));
  return CUDNN_STATUS_SUCCESS;
}
/// Fills descriptors that the caller has created.
cudnnStatus_t give_descriptor(const Descriptor& from, cudnnBackendDescriptorType_t type, std::int64_t room,
                              std::int64_t* count, void* to) {
  if (count != nullptr) *count = 1;
  if (room == 0 || to == nullptr) return CUDNN_STATUS_SUCCESS;
  Descriptor* const target = find(*static_cast<cudnnBackendDescriptor_t*>(to));
  if (target == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (target->type != type) return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a result of another type");
  target->graph = from.graph;
  target->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t read(const Descriptor& own, cudnnBackendAttributeName_t name, std::int64_t room, std::int64_t* count,
                   void* to) {
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      if (CudnnDouble::takes_nothing) return give<std::int64_t>({}, room, count, to);
      return give_descriptor(own, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, room, count, to);
    case CUDNN_ATTR_ENGINECFG_ENGINE: return give_descriptor(own, CUDNN_BACKEND_ENGINE_DESCRIPTOR, room, count, to);
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: return give<std::int64_t>({}, room, count, to);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: return give<std::int64_t>({6}, room, count, to);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      if (own.graph->adds_in_any_order())
        return give<cudnnBackendNumericalNote_t>(
            {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, room, count, to);
      return give<cudnnBackendNumericalNote_t>({CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, room, count, to);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return give<cudnnBackendBehaviorNote_t>({CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, room, count, to);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: return give<std::int64_t>({workspace_of(own)}, room, count, to);
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED: return give<std::int64_t>({200 << 10}, room, count, to);
    default: break;
  }
  const auto found = own.values.find(name);
  if (found == own.values.end() || !found->second.parts.empty())
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  message("attribute ", static_cast<int>(name), " is read, which the double does not know"));
  if (count != nullptr) *count = found->second.count;
  if (to != nullptr && room >= found->second.count)
    std::memcpy(to, found->second.bytes.data(), found->second.bytes.size());
  return CUDNN_STATUS_SUCCESS;
}

// ---- Execution

bool overlap(const std::byte* a, std::int64_t a_bytes, const std::byte* b, std::int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/// Whether `bytes` bytes from `data` on are memory of the handle's device.
bool is_on(const Library& library, const std::byte* data, std::int64_t bytes) {
  const Block* const block = machine().block_of(data, static_cast<std::size_t>(bytes));
  return block != nullptr && block->bytes > 0 && !block->pinned && block->device == library.device;
}

/// Reads addresses and scalars from the variant pack. Returns why it is invalid; empty if it is valid.
std::string unpack(const Library& library, const Descriptor& plan, const Descriptor& pack, CudnnAddresses& addresses,
                   std::map<std::int64_t, float>& scalars) {
  const auto uids = pack.list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.list<std::byte*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (const auto& [uid, pointer] : ranges::views::zip(uids, pointers)) addresses[uid] = pointer;
  auto* const workspace = pack.get<std::byte*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (!is_on(library, workspace, workspace_of(plan))) return "the workspace leaves the device's memory";
  for (const auto& [uid, tensor] : plan.graph->tensors()) {
    if (tensor.is_virtual) continue;
    std::byte* const data = addresses[uid];
    if (data == nullptr) return message("tensor ", uid, " has no address");
    if (tensor.is_by_value) {
      std::memcpy(&scalars[uid], data, sizeof(float));
      continue;
    }
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(tensor.alignment) != 0)
      return message("tensor ", uid, " is not aligned to ", tensor.alignment, " bytes, as its descriptor says");
    if (!is_on(library, data, tensor.bytes())) return message("tensor ", uid, " leaves the device's memory");
    if (overlap(data, tensor.bytes(), workspace, workspace_of(plan)))
      return message("tensor ", uid, " lies in the workspace");
  }
  return "";
}

}  // namespace

extern "C" {

// ---- The library

std::size_t cudnnGetVersion() { return CudnnDouble::version; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                : "an error of the double";
}
void cudnnGetLastErrorString(char* to, std::size_t bytes) {
  if (bytes == 0) return;
  std::strncpy(to, last_error.c_str(), bytes - 1);
  to[bytes - 1] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  BEGIN(true);
  if (machine().capture_of_thread())
    return refuse(CUDNN_STATUS_INTERNAL_ERROR, "cudnnCreate by a thread that captures a graph");
  machine().give(handle, new Library{.device = machine().device()}, "cuDNN's handles");
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  machine().take_back<Library>(handle, "cuDNN's handles");
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  BEGIN(true);
  const auto found = machine().find(stream);
  if (!found || found->device() != ours(handle).device)
    return refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream of another device than the handle's");
  ours(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  BEGIN(false);
  *stream = ours(handle).stream;
  return CUDNN_STATUS_SUCCESS;
}

// ---- Descriptors

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  BEGIN(false);
  if (rules().count(type) == 0)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  message("descriptor ", static_cast<int>(type), ", which the double does not know"));
  const std::lock_guard lock(machine().mutex);
  const auto own = new Shared(std::make_shared<Descriptor>());
  (*own)->type = type;
  *made = own;
  living().insert(*made);
  machine().hold("cuDNN's descriptors", 1);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  if (find(handle) == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const std::lock_guard lock(machine().mutex);
  living().erase(handle);
  delete static_cast<Shared*>(handle);
  machine().hold("cuDNN's descriptors", -1);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* from) {
  BEGIN(false);
  Descriptor* const own = find(handle);
  if (own == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (own->finalized) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "an attribute of a finalized descriptor is set");
  const auto& known = rules().at(own->type);
  const auto rule = std::find_if(known.begin(), known.end(), [&](const Rule& r) { return r.name == name; });
  const std::string what =
      message("attribute ", static_cast<int>(name), " of descriptor ", static_cast<int>(own->type));
  if (rule == known.end()) return refuse(CUDNN_STATUS_NOT_SUPPORTED, what + ", which the double does not know");
  if (rule->type != type) return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, what + " is of another type");
  if (count < 1 || count > rule->most)
    return refuse(CUDNN_STATUS_BAD_PARAM, message(what, " has ", count, " elements"));
  if (from == nullptr) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, what + " is nowhere");
  Value value;
  value.count = count;
  value.bytes.resize(static_cast<std::size_t>(count) * width(type));
  std::memcpy(value.bytes.data(), from, value.bytes.size());
  for (std::int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; ++i) {
    cudnnBackendDescriptor_t part = static_cast<const cudnnBackendDescriptor_t*>(from)[i];
    if (find(part) == nullptr) return CUDNN_STATUS_BAD_PARAM;
    value.parts.push_back(*static_cast<Shared*>(part));
    if (!value.parts.back()->finalized)
      return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, what + " is a descriptor that is not finalized");
  }
  own->values[name] = std::move(value);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t room, std::int64_t* count, void* to) {
  // Counting is a separate call for faults: cudnn-frontend 1.32 crashes if counting an engine's notes fails but reading
  // does not.
  if (machine().enter(to == nullptr ? "count in cudnnBackendGetAttribute" : __func__, false) != cudaSuccess)
    return CUDNN_STATUS_INTERNAL_ERROR;
  const Descriptor* const own = find(handle);
  if (own == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (!own->finalized)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "an attribute of a descriptor that is not finalized");
  return read(*own, name, room, count, to);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  BEGIN(false);
  Descriptor* const own = find(handle);
  if (own == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const cudnnStatus_t status = finalize(*own);
  own->finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                  cudnnBackendDescriptor_t pack_handle) {
  BEGIN(true);
  const Library& library = ours(handle);
  if (library.device != machine().device())
    return refuse(CUDNN_STATUS_BAD_PARAM, "the thread's device is not the handle's");
  const Descriptor *const plan = find(plan_handle), *const pack = find(pack_handle);
  if (plan == nullptr || pack == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "what is run is no plan, or its addresses are no pack");
  if (!plan->finalized || !pack->finalized)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan or its addresses are not finalized");
  CudnnAddresses addresses;
  std::map<std::int64_t, float> scalars;
  if (std::string problem = unpack(library, *plan, *pack, addresses, scalars); !problem.empty())
    return refuse(CUDNN_STATUS_BAD_PARAM, problem);

  auto* const workspace = pack->get<std::byte*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const auto bytes = static_cast<std::size_t>(workspace_of(*plan));
  const Shared& shared = *static_cast<Shared*>(plan_handle);
  // Queued work ends before its code is unloaded, but a captured graph may be launched after that.
  const bool captured = machine().find(library.stream) && machine().find(library.stream)->capture;
  const Shared holds = captured ? nullptr : shared;
  const cudaError_t submitted = machine().submit(library.stream, [=, watched = std::weak_ptr(shared)] {
    const Shared alive = watched.lock();
    if (!alive) return machine().problem("cuDNN: a graph launches a plan that is gone");
    std::memset(workspace, 0xff, bytes);
    alive->graph->run(addresses, scalars);
    static_cast<void>(holds);
  });
  return submitted == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
}
}
