// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions of CUDA's runtime that only cudnn-frontend calls: the device's architecture, and user objects by which a
/// captured graph keeps a plan alive.
///
/// Rules: CUDA Runtime API 13.0, "Graph Management", "Stream Management".
#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "machine.hpp"

namespace {

using namespace fsdp::testing::cuda_host;

/// The object behind a cudaUserObject_t.
using UserObject = std::shared_ptr<void>;

#define BEGIN(context) \
  if (const cudaError_t wrong = machine().enter(__func__, context); wrong != cudaSuccess) return Machine::leave(wrong)

}  // namespace

namespace fsdp::testing::cuda_host {

/// Used by cudnn_never.cpp, which includes no headers.
int never_called(const char* function) {
  machine().problem(std::string(function) + ", which attention does not need");
  return cudaErrorNotSupported;
}

}  // namespace fsdp::testing::cuda_host

extern "C" {

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  BEGIN(false);
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}
/// An initializer of cudnn-frontend calls this for its own kernels.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** address, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  *address = nullptr;
  return cudaErrorNotSupported;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  BEGIN(false);
  *mode = cudaStreamCaptureModeGlobal;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t* graph, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                     std::size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                        cudaGraph_t* graph, const cudaGraphNode_t**, std::size_t*) {
#endif
  BEGIN(true);
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().find(stream);
  if (!found) return Machine::leave(cudaErrorInvalidResourceHandle);
  *status = !found->capture           ? cudaStreamCaptureStatusNone
            : found->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  if (found->capture)
    *graph = reinterpret_cast<cudaGraph_t>(const_cast<std::shared_ptr<Graph>*>(&found->capture->graph()));
  return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* made, void* data, cudaHostFn_t destroy, unsigned, unsigned) {
  BEGIN(false);
  machine().give(made, new UserObject(data, destroy), "user objects");
  return cudaSuccess;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned) {
  machine().take_back<UserObject>(object, "user objects");
  return cudaSuccess;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned, unsigned) {
  BEGIN(true);
  const std::lock_guard lock(machine().mutex);
  (*reinterpret_cast<std::shared_ptr<Graph>*>(graph))->holds.push_back(*reinterpret_cast<UserObject*>(object));
  return cudaSuccess;
}
}
