// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/options.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <system_error>

#include <fsdp/core/error.hpp>
#include <fsdp/core/nearest.hpp>
#include <fsdp/data/sampler.hpp>
#include <fsdp/train/byte_count.hpp>

namespace fsdp::train {
namespace {

struct AtLeast {
  const char* flag;
  std::int64_t value;
  std::int64_t least;
};

void require_least(std::span<const AtLeast> flags) {
  for (const AtLeast& flag : flags)
    require<InputError>(flag.value >= flag.least, flag.flag, " ", flag.value, " must be at least ", flag.least);
}

void require_in(bool holds, const char* flag, double value, const char* range) {
  require<InputError>(holds && std::isfinite(value), flag, " ", value, " must be ", range);
}

void require_separator(const std::optional<std::int64_t>& separator) {
  require<InputError>(!separator || (*separator >= 0 && *separator <= 255), "--document-separator ",
                      separator.value_or(0), " must be a byte: 0 to 255");
}

}  // namespace

void validate(const TrainOptions& o, std::int64_t ranks) {
  require<InputError>(!o.data.empty() || o.dry_run || o.print_schedule,
                      "--data is missing; give files or folders of text");
  (void)loss_scale_of(o);
  const std::array least = {AtLeast{"--steps", o.steps, 1},
                            AtLeast{"--seq-len", o.seq_len, 1},
                            AtLeast{"--batch-size", o.batch_size, 1},
                            AtLeast{"--grad-accum", o.grad_accum, 1},
                            AtLeast{"--warmup", o.warmup, 0},
                            AtLeast{"--validation-every", o.validation_every, 0},
                            AtLeast{"--validation-windows", o.validation_windows, 0},
                            AtLeast{"--checkpoint-every", o.checkpoint_every, 0},
                            AtLeast{"--keep", o.keep, 0},
                            AtLeast{"--log-every", o.log_every, 1},
                            AtLeast{"--blocks-per-unit", o.units.blocks_per_unit, 1},
                            AtLeast{"--merge-units-below", o.units.merge_below, 0},
                            AtLeast{"--ranks", o.ranks, 0},
                            AtLeast{"--threads", o.launch.threads, 0},
                            AtLeast{"--ranks", o.launch.ranks, 1}};
  require_least(least);
  if (!o.memory.empty()) parse_bytes("memory", o.memory);
  require_in(o.lr >= 0, "--lr", o.lr, "at least 0");
  require_in(o.clip >= 0, "--clip", o.clip, "at least 0 (0 is off)");
  require_in(o.validation_fraction >= 0 && o.validation_fraction < 1, "--validation-fraction", o.validation_fraction,
             "at least 0 and below 1");
  require_in(o.launch.deadline_seconds > 0, "--deadline", o.launch.deadline_seconds, "above 0 seconds");
  require_in(o.disk_deadline_seconds > 0 && o.disk_deadline_seconds <= 1e6, "--disk-deadline", o.disk_deadline_seconds,
             "above 0 and at most 1e6 seconds");
  require<InputError>(o.resume != "auto" || !o.checkpoint_dir.empty(),
                      "--resume auto takes the newest checkpoint of --checkpoint-dir, which is missing; give it too");
  require<InputError>(o.keep == 0 || !o.checkpoint_dir.empty(),
                      "--keep is for checkpoints, and none are written; give --checkpoint-dir too");
  require<InputError>(o.ranks == 0 || o.dry_run || o.print_schedule,
                      "--ranks is for --dry-run only; a run has the ranks that --comm or its launcher starts");
  require_separator(o.document_separator);
  require<InputError>(
      !o.cuda_graphs || !o.document_separator,
      "--cuda-graphs keeps one step for all, and --document-separator makes each another one; leave one "
      "of them out");
  require<InputError>(
      !o.cuda_graphs || o.trace.empty(),
      "--trace tells what the host asks for in each step, and with --cuda-graphs it asks once; leave one "
      "of them out");
  data::check_batch(o.batch_size, ranks, o.grad_accum);
}

void validate(const EvalOptions& o) {
  require_least(std::array{AtLeast{"--seq-len", o.seq_len, 1}, AtLeast{"--batch-size", o.batch_size, 1},
                           AtLeast{"--windows", o.windows, 0}, AtLeast{"--threads", o.launch.threads, 0}});
  require_in(o.launch.deadline_seconds > 0, "--deadline", o.launch.deadline_seconds, "above 0 seconds");
  require_separator(o.document_separator);
}

void validate(const GenerateOptions& o) {
  require<InputError>(!o.prompt.empty(), "--prompt is empty; give at least one byte to continue from");
  require_least(std::array{AtLeast{"--tokens", o.tokens, 0}, AtLeast{"--threads", o.launch.threads, 0}});
  require_in(o.temperature >= 0, "--temperature", o.temperature, "at least 0 (0: always the likeliest byte)");
  require_in(o.launch.deadline_seconds > 0, "--deadline", o.launch.deadline_seconds, "above 0 seconds");
}

std::optional<DynamicLossScale> loss_scale_of(const TrainOptions& options) {
  const std::string& text = options.loss_scale;
  if (text == "off") return std::nullopt;
  if (text == "dynamic") return DynamicLossScale();
  double scale = 0;
  constexpr std::string_view prefix = "dynamic:";
  const char* const end = text.data() + text.size();
  if (text.starts_with(prefix)) {
    const auto [last, error] = std::from_chars(text.data() + prefix.size(), end, scale);
    if (error == std::errc() && last == end) return DynamicLossScale({.scale = scale, .sound_steps = 0});
  }
  throw InputError(message("--loss-scale ", text, " is not known; write off, dynamic or dynamic:INITIAL"));
}

LrSchedule schedule_of(const TrainOptions& options) {
  return {.shape = options.lr_schedule, .peak = options.lr, .warmup = options.warmup, .steps = options.steps};
}

std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here) {
  return asked > 0 ? asked : std::max<std::int64_t>(cores / std::max<std::int64_t>(ranks_here, 1), 1);
}

}  // namespace fsdp::train
