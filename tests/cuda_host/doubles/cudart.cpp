// SPDX-License-Identifier: Apache-2.0
/// @file
/// A fake CUDA runtime: devices, memory, streams, events.
///
/// Rules: CUDA Runtime API 13.0, "Device Management", "Memory Management", "Stream Management", "API synchronization
/// behavior".
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <tessera/fsdp/core/error.hpp>

#include "machine.hpp"

namespace {

using fsdp::message;
using namespace fsdp::testing::cuda_host;

/// Begins a call. Returns the error from it if the call must not continue.
#define BEGIN(context) \
  if (const cudaError_t wrong = machine().enter(__func__, context); wrong != cudaSuccess) return Machine::leave(wrong)

/// Calls that wait, or may wait, invalidate the capture of a thread: a captured stream does not run anything.
bool breaks_capture(const char* call) {
  const auto capture = machine().capture_of_thread();
  if (!capture) return false;
  capture->invalid = true;
  machine().problem(message(call, " by a thread that captures a graph"));
  return true;
}
#define BEGIN_WITHOUT_CAPTURE() \
  BEGIN(true);                  \
  if (breaks_capture(__func__)) return Machine::leave(cudaErrorStreamCaptureUnsupported)

/// Frees memory once the device is idle. `giver`: the call that must have allocated it.
cudaError_t give_back(void* data, bool pinned, const char* call, const char* giver) {
  const cudaError_t waited = machine().wait_for_device(call);
  if (machine().free(data, pinned)) return Machine::leave(waited);
  machine().problem(message(call, " of what ", giver, " did not give"));
  return Machine::leave(cudaErrorInvalidValue);
}

}  // namespace

extern "C" {

// ---- Devices

cudaError_t cudaDriverGetVersion(int* version) {
  BEGIN(false);
  *version = machine().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  BEGIN(false);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  BEGIN(false);
  if (machine().driver_version / 1000 < CUDART_VERSION / 1000) return Machine::leave(cudaErrorInsufficientDriver);
  *count = machine().gpus();
  return Machine::leave(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
/// Since CUDA 12 this call creates the context.
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().gpus()) return Machine::leave(cudaErrorInvalidDevice);
  machine().select(device);
  BEGIN(true);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  BEGIN(false);
  *properties = {};
  std::strcpy(properties->name, "a double");
  properties->major = 9;
  for (int byte = 0; byte < 15; ++byte) properties->uuid.bytes[byte] = static_cast<char>(0x11 * byte);
  properties->uuid.bytes[15] = static_cast<char>(machine().first_gpu + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int, int device) {
  BEGIN(false);
  std::snprintf(address, 13, "0000:%02X:00.0", 0x1b + machine().first_gpu + device);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* all) {
  BEGIN(true);
  const std::lock_guard lock(machine().mutex);
  *all = machine().device_bytes;
  *unused = *all - machine().used_bytes(machine().device());
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  BEGIN_WITHOUT_CAPTURE();
  return Machine::leave(machine().wait_for_device(__func__));
}

// ---- Memory

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  BEGIN_WITHOUT_CAPTURE();
  *data = machine().allocate(bytes, false);
  return Machine::leave(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* data) {
  BEGIN_WITHOUT_CAPTURE();
  return data == nullptr ? cudaSuccess : give_back(data, false, __func__, "cudaMalloc");
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  BEGIN_WITHOUT_CAPTURE();
  *data = machine().allocate(bytes, true);
  return Machine::leave(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeHost(void* data) {
  BEGIN_WITHOUT_CAPTURE();
  return give_back(data, true, __func__, "cudaHostAlloc");
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  BEGIN_WITHOUT_CAPTURE();  // work of the default stream would wait for captured streams
  if (!machine().is_allocated(data, bytes)) return Machine::leave(cudaErrorInvalidValue);
  return Machine::leave(machine().submit(nullptr, [=] { std::memset(data, value, bytes); }));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  BEGIN(true);
  const Block* const source = machine().block_of(from, bytes);
  const Block* const target = machine().block_of(to, bytes);
  if (source == nullptr || target == nullptr) {
    machine().problem(
        message("cudaMemcpyAsync of ", bytes, " bytes leaves the memory it ", source == nullptr ? "reads" : "writes"));
    return Machine::leave(cudaErrorInvalidValue);
  }
  const bool pageable = source->bytes == 0 || target->bytes == 0;
  const cudaError_t submitted = machine().submit(stream, [=] { std::memmove(to, from, bytes); });
  if (submitted != cudaSuccess || !pageable || machine().capture_of_thread()) return Machine::leave(submitted);
  // Pageable memory is staged. The driver may wait for the stream then, and does if the copy writes host memory.
  return Machine::leave(machine().wait_for(stream, "a copy of pageable memory"));
}

// ---- Streams and events

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  BEGIN(true);
  *least = 0;
  *greatest = Stream::highest;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  BEGIN(true);
  if (flags != cudaStreamNonBlocking) machine().problem("a stream that the default stream waits for");
  *stream = reinterpret_cast<cudaStream_t>(machine().make_stream(std::clamp(priority, Stream::highest, 0)).get());
  machine().hold("streams", 1);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  BEGIN(true);
  if (!machine().forget(stream)) return Machine::leave(cudaErrorInvalidResourceHandle);
  machine().hold("streams", -1);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  BEGIN_WITHOUT_CAPTURE();
  return Machine::leave(machine().wait_for(stream, __func__));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  BEGIN(true);
  if (flags != cudaEventDisableTiming) machine().problem("an event that takes times, which costs streams time");
  machine().give(event, new Event{.device = machine().device()}, "events");
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  BEGIN(true);
  machine().take_back<Event>(event, "events");
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  BEGIN(true);
  const std::lock_guard lock(machine().mutex);
  auto& event = *reinterpret_cast<Event*>(handle);
  const auto found = machine().find(stream);
  if (!found || found->device() != event.device) return Machine::leave(cudaErrorInvalidResourceHandle);
  event.recorded = true;
  event.capture = found->capture;
  if (found->capture) {
    event.knows = found->capture->knows(found.get());
    return Machine::leave(found->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
  event.point = Point();
  found->push(event.point);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  BEGIN_WITHOUT_CAPTURE();
  const std::lock_guard lock(machine().mutex);
  const auto& event = *reinterpret_cast<Event*>(handle);
  if (!event.recorded) return cudaSuccess;
  if (event.capture.lock()) return Machine::leave(cudaErrorCapturedEvent);
  return event.point.happened() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  BEGIN(true);
  const std::lock_guard lock(machine().mutex);
  const auto& event = *reinterpret_cast<Event*>(handle);
  const auto found = machine().find(stream);
  if (!found) return Machine::leave(cudaErrorInvalidResourceHandle);
  if (!event.recorded) return cudaSuccess;
  const auto capture = event.capture.lock();
  if (capture && !found->capture) found->capture = capture;
  if (found->capture != capture) {
    machine().problem("a captured stream waits for an event of no captured work");
    if (found->capture) found->capture->invalid = true;
    return Machine::leave(cudaErrorStreamCaptureIsolation);
  }
  if (capture) {
    capture->join(found.get(), event.knows);
    return cudaSuccess;
  }
  found->push([point = event.point, generation = machine().generation()] {
    while (!point.wait(std::chrono::milliseconds(100)) && machine().generation() == generation) continue;
  });
  return cudaSuccess;
}

// ---- Graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  BEGIN(true);
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().find(stream);
  if (!found || stream == nullptr) return Machine::leave(cudaErrorStreamCaptureUnsupported);
  if (found->capture) return Machine::leave(cudaErrorIllegalState);
  if (mode != cudaStreamCaptureModeThreadLocal)
    machine().problem("a capture that forbids other threads' calls, or allows those of its own");
  machine().begin_capture(found);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const cudaError_t failed = machine().enter(__func__, true);  // the capture ends even if the call fails
  const std::lock_guard lock(machine().mutex);
  *graph = nullptr;
  const auto found = machine().find(stream);
  const auto capture = found ? found->capture : nullptr;
  if (!capture || capture->origin() != found.get()) return Machine::leave(cudaErrorStreamCaptureUnmatched);
  machine().end_capture(capture);
  if (failed != cudaSuccess) return Machine::leave(failed);
  if (capture->invalid) return Machine::leave(cudaErrorStreamCaptureInvalidated);
  if (!capture->joined()) return Machine::leave(cudaErrorStreamCaptureUnjoined);
  machine().give(graph, new std::shared_ptr<Graph>(capture->graph()), "graphs");
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  BEGIN(true);
  machine().take_back<std::shared_ptr<Graph>>(graph, "graphs");
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t handle, unsigned long long flags) {
  BEGIN(true);
  const auto& graph = *reinterpret_cast<std::shared_ptr<Graph>*>(handle);
  if (graph->priority < 0 && (flags & cudaGraphInstantiateFlagUseNodePriority) == 0)
    machine().problem("a graph whose kernels lose the priorities of their streams");
  machine().give(made, new std::shared_ptr<Graph>(graph), "executable graphs");
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  BEGIN(true);
  machine().take_back<std::shared_ptr<Graph>>(graph, "executable graphs");
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  BEGIN(true);
  const auto& graph = *reinterpret_cast<std::shared_ptr<Graph>*>(handle);
  const std::lock_guard lock(machine().mutex);
  for (const Work& part : graph->launches) part();
  return Machine::leave(machine().submit(stream, [graph] {
    for (const Work& node : graph->nodes) node();
  }));
}

// ---- Errors

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "an error of the double";
}
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = message("error ", static_cast<int>(error));
  return text.c_str();
}
}
