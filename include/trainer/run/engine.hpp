// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interface between a program and a stack. Only sample numbers, plain numbers and text cross it, never a batch, so
/// that its callers are compiled once. engine_of.hpp and inference_of.hpp implement it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/training/step_size.hpp>
#include <tessera/fsdp/verification/step_digest.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/resumed.hpp>

namespace fsdp::train {

/// The loss of a batch of held-out samples.
struct HeldOutBatch {
  double loss = 0;           ///< sum over this rank's targets
  std::int64_t targets = 0;  ///< number of targets in all ranks' batches
  int stop = 0;              ///< signal that some rank received, in which case nothing was evaluated; 0: none
};

/// The trained model, for code that depends on neither its type nor its stack.
struct RunModel {
  checkpoint::ModelListing listing = {};    ///< the contents of a folder of this model
  checkpoint::OptimizerStates states = {};  ///< the states that its optimizer stores
  checkpoint::ReadModelListing read = {};   ///< reads the listing of a checkpoint's model
  /// Reads the listing of --model's folder with the adapters of --adapter.
  checkpoint::ReadModelListing read_first = {};
};

/// An engine's model, source, stack and plan.
struct EngineFacts {
  report::StartRecord start = {};              ///< its first step is not set
  std::string source = {};                     ///< Source::text
  std::int64_t training = 0, validation = 0;   ///< number of samples
  std::string_view unit = {}, loss_unit = {};  ///< nn::unit_of, and the batch's loss_unit if it has one
  std::string reduced_sooner = {};             ///< the result of train::reduced_sooner
  std::string residency = {};                  ///< report::residency_text
  std::string lost_promise = {};               ///< Monitor::lost_promise, if the run's sums depend on it
  std::int64_t planned_bytes = 0;              ///< planned bytes of tensors on the device
  std::int64_t host_bytes = 0;                 ///< planned bytes of activations in host memory
  report::MatmulPeak peak = {};
  RunModel model = {};
  RunRecord record = {};        ///< later runs compare it with theirs
  bool names_folder = false;    ///< whether --model is a folder
  bool asynchronous = false;    ///< whether steps are enqueued on a device
  bool graphs = false;          ///< whether a step is captured as a graph and replayed
  std::string steps = {};       ///< whether steps are graphs, and else why; empty on a device without graph capture
  StepSize size = {};           ///< size of a rank's step
  std::int64_t vocabulary = 0;  ///< number of tokens; 0 if the model does not write text
  int pieces = 1;               ///< number of pieces of a step over all ranks
};

/// The results of a step: values that the host knows once the step is enqueued, and values that the device computes.
/// All are the same on every rank, except bytes and seconds.
struct StepResults {
  BatchCounts counts = {};  ///< counts over all ranks
  device::StepDecision decision = {};
  std::vector<double> norms_apart = {};           ///< see StepControl::norms_apart
  std::vector<StepDigest> digests = {};           ///< empty unless the engine digests steps
  comm::MeshTraffic traffic = {};                 ///< traffic of the step
  double flops = 0;                               ///< FLOPs of all ranks
  std::int64_t peak_bytes = 0;                    ///< peak so far
  std::optional<double> collective_seconds = {};  ///< empty on a device with queues for collectives
  /// When the host saw the end of the step while it enqueued a later one; empty if it did not.
  std::optional<std::chrono::steady_clock::time_point> done = {};

  /// The divisor of the sum of losses.
  double targets() const { return static_cast<double>(counts.valid_targets > 0 ? counts.valid_targets : 1); }
};

/// One rank's training of a model on a source.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const comm::Ranks& ranks() const = 0;  ///< the ranks that train
  virtual const EngineFacts& facts() const = 0;  ///< what is fixed before the first step

  /// Initializes all weights, or only the adapters' weights, from a seed. Collective.
  virtual void initialize(std::uint64_t seed, bool adapters_alone) = 0;
  /// Functions for this rank's shards of weights and optimizer states.
  /// @{
  virtual void load(const checkpoint::ModelFiles& files) = 0;    ///< from a model's folder
  virtual void restore(const checkpoint::Checkpoint& from) = 0;  ///< from a checkpoint
  virtual void require_finite() = 0;                             ///< throws DivergedError if a value is not finite
  virtual void write(checkpoint::Save& file) = 0;                ///< the shards that the rank owns
  /// @}

  virtual std::int64_t steps() = 0;    ///< number of steps so far
  virtual std::int64_t skipped() = 0;  ///< number of skipped ones among them; waits for the device

  virtual data::Position position() const = 0;            ///< the position from which the next step reads its samples
  virtual void seek(const data::Position& position) = 0;  ///< sets that position

  /// Draws a step's samples and enqueues the step. `more`: another step follows, whose samples are drawn meanwhile.
  /// Collective. Throws on all ranks: InputError for data that a rank cannot read, CorruptionError if a verification
  /// (--verify-every) detects corruption. Returns the values that the host knows of the step, valid until its results
  /// are returned.
  virtual const StepResults& step(const device::StepInputs& inputs, bool more) = 0;
  /// Waits for the oldest step whose results were not returned yet, and returns them.
  virtual StepResults results() = 0;
  /// The requests that any rank had received by signals when the next step's samples were drawn. Collective.
  virtual comm::SignalRequests asked() = 0;
  virtual comm::MeshTraffic traffic() = 0;      ///< calls and bytes of collectives so far
  virtual std::int64_t peak_bytes() const = 0;  ///< peak of this rank's tensor memory

  /// Evaluates at most one micro-batch of held-out samples. `asked`: requests by signals to this rank. Collective.
  virtual HeldOutBatch evaluate(std::span<const std::int64_t> samples, const comm::SignalRequests& asked) = 0;
  /// Returns the logits [V] of one row of a micro-batch of tokens. Only if the model writes text. Collective.
  virtual std::vector<float> logits(std::span<const std::int32_t> tokens, std::int64_t row) = 0;

  /// The tensors of a step, for replays. `show_next`: the next step writes its streams and gradients to `tensors`,
  /// which must outlive it; `write_weights` then adds the weights. Collective, except `shapes`.
  /// @{
  virtual report::StepShapes shapes() = 0;
  virtual void show_next(report::StepTensors& tensors) = 0;
  virtual void write_weights(report::StepTensors& tensors) = 0;
  /// @}
};

/// One rank's forward passes of a folder's model. Functions that are not const are collective.
class Inference {
 public:
  virtual ~Inference() = default;
  virtual const comm::Ranks& ranks() const = 0;                      ///< the ranks that compute
  virtual std::int64_t vocabulary() const = 0;                       ///< number of tokens
  virtual std::optional<std::int64_t> longest_sequence() const = 0;  ///< the most tokens of a sequence, if limited
  virtual bool continues() const = 0;                                ///< whether the model has `next_logits`

  /// Plans passes of this size, allocates their memory and loads the weights.
  virtual void begin(const StepSize& size, Purpose purpose) = 0;
  /// Returns the logits [rows, V] of rows of a batch.
  virtual std::vector<float> logits(std::span<const std::int32_t> tokens, std::span<const std::int64_t> rows) = 0;
  /// Returns the logits [sequences, V] of one more token of each sequence, at `positions`.
  virtual std::vector<float> next_logits(std::span<const std::int32_t> tokens,
                                         std::span<const std::int32_t> positions) = 0;
  virtual HeldOutBatch evaluate(std::span<const std::int64_t> samples) = 0;  ///< see Engine::evaluate
};

}  // namespace fsdp::train
