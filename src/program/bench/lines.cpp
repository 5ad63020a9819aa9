// SPDX-License-Identifier: Apache-2.0

#include "lines.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

namespace fsdp::bench {
namespace {

using Object = nlohmann::ordered_json;

/// Rounds to five significant digits. Returns null for NaN and infinities, which JSON does not have.
Object readable(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0.0;
  const double scale = std::pow(10.0, 4 - std::floor(std::log10(std::abs(value))));
  return scale >= 1 ? std::round(value * scale) / scale : std::round(value);
}

}  // namespace

std::string json_line(const MlpLine& l) {
  Object object = {{"bench", "mlp"},
                   {"seq", l.seq},
                   {"tiling", l.tiling},
                   {"precision", l.precision},
                   {"threads", l.threads},
                   {"hidden", l.hidden},
                   {"intermediate", l.intermediate},
                   {"forward_ms", readable(l.forward_ms)},
                   {"backward_ms", readable(l.backward_ms)},
                   {"peak_bytes", l.peak_bytes},
                   {"activation_bytes", l.activation_bytes},
                   {"stream_bytes", l.stream_bytes},
                   {"weight_bytes", l.weight_bytes},
                   {"gradient_bytes", l.gradient_bytes},
                   {"gemm_floor_ms", readable(l.gemm_floor_ms)},
                   {"module_gemm_ms", readable(l.module_gemm_ms)},
                   {"ratio", readable(l.ratio)},
                   {"ratio_to_module_gemm", readable(l.ratio_to_module_gemm)}};
  if (l.ratio_to_untiled) object["ratio_to_untiled"] = readable(*l.ratio_to_untiled);
  return object.dump();
}

std::string json_line(const AttentionLine& l) {
  const Object object = {{"bench", "attention"},
                         {"seq", l.seq},
                         {"heads", l.heads},
                         {"kv_heads", l.kv_heads},
                         {"head_dim", l.head_dim},
                         {"precision", l.precision},
                         {"threads", l.threads},
                         {"forward_ms", readable(l.forward_ms)},
                         {"backward_ms", readable(l.backward_ms)},
                         {"scratch_bytes", l.scratch_bytes},
                         {"matmul_gflops", readable(l.matmul_gflops)},
                         {"forward_ratio", readable(l.forward_ratio)},
                         {"backward_ratio", readable(l.backward_ratio)}};
  return object.dump();
}

std::string json_line(const HeadLine& l) {
  const Object object = {{"bench", "head"},
                         {"tokens", l.tokens},
                         {"hidden", l.hidden},
                         {"vocabulary", l.vocabulary},
                         {"tiling", l.tiling},
                         {"precision", l.precision},
                         {"threads", l.threads},
                         {"tokens_per_tile", l.tokens_per_tile},
                         {"columns_per_block", l.columns_per_block},
                         {"ms", readable(l.milliseconds)},
                         {"matmul_ms", readable(l.matmul_ms)},
                         {"ratio", readable(l.ratio)},
                         {"planned_bytes", l.planned_bytes},
                         {"arena_bytes", l.arena_bytes}};
  return object.dump();
}

std::string json_line(const MlpTableLine& l) {
  Object object = {{"bench", "mlp_table"},
                   {"seq", l.seq},
                   {"tiling", l.tiling},
                   {"plan", l.plan},
                   {"precision", l.precision},
                   {"ranks", l.ranks},
                   {"threads", l.threads},
                   {"hidden", l.hidden},
                   {"intermediate", l.intermediate},
                   {"peak_bytes", l.peak_bytes},
                   {"activation_bytes", l.activation_bytes},
                   {"stream_bytes", l.stream_bytes},
                   {"main_bytes", l.main_bytes},
                   {"model_bytes", l.model_bytes},
                   {"gathered_bytes", l.gathered_bytes},
                   {"gradient_bytes", l.gradient_bytes},
                   {"gradient_shard_bytes", l.gradient_shard_bytes},
                   {"matmul_flops", l.matmul_flops}};
  const auto add = [&object](const char* name, const std::optional<double>& value) {
    if (value) object[name] = readable(*value);
  };
  add("forward_ms", l.forward_ms);
  add("backward_ms", l.backward_ms);
  add("ratio_to_untiled", l.ratio_to_untiled);
  add("flops_to_untiled", l.flops_to_untiled);
  if (l.published_untiled_bytes) object["published_untiled_bytes"] = *l.published_untiled_bytes;
  if (l.published_tiled_bytes) object["published_tiled_bytes"] = *l.published_tiled_bytes;
  return object.dump();
}

std::string json_line(const StepLine& l) {
  Object object = {{"bench", "step"},
                   {"stack", l.stack},
                   {"tiling", l.tiling},
                   {"optimizer", l.optimizer},
                   {"ranks", l.ranks},
                   {"threads", l.threads},
                   {"parameters", l.parameters},
                   {"seq", l.seq},
                   {"tokens_per_second", readable(l.tokens_per_second)},
                   {"step_ms", readable(l.step_ms)},
                   {"floor_ms", readable(l.floor_ms)},
                   {"ratio", readable(l.ratio)},
                   {"communication_ms", readable(l.communication_ms)},
                   {"communication_share", readable(l.communication_ms / l.step_ms)},
                   {"waiting_ms", readable(l.waiting_ms)},
                   {"copied_bytes", l.copied_bytes},
                   {"allocations", l.allocations},
                   {"peak_bytes", l.peak_bytes},
                   {"loss", l.loss},
                   {"floor_matmul_ms", readable(l.floor.matmul_ms)},
                   {"floor_attention_ms", readable(l.floor.attention_ms)},
                   {"floor_elementwise_ms", readable(l.floor.elementwise_ms)},
                   {"floor_optimizer_ms", readable(l.floor.optimizer_ms)},
                   {"matmul_gflops", readable(l.floor.matmul_gflops)},
                   {"copy_gb_per_second", readable(l.floor.copy_gb_per_second)},
                   {"triad_gb_per_second", readable(l.floor.triad_gb_per_second)},
                   {"elementwise_bytes", l.floor.elementwise_bytes},
                   {"forward_ms", readable(l.phases.forward_ms)},
                   {"loss_ms", readable(l.phases.loss_ms)},
                   {"backward_ms", readable(l.phases.backward_ms)},
                   {"exchange_ms", readable(l.phases.exchange_ms)},
                   {"optimizer_ms", readable(l.phases.optimizer_ms)}};
  if (l.owners_balance) object["owners_balance"] = readable(*l.owners_balance);
  if (l.bare_loop_ms) object["bare_loop_ms"] = readable(*l.bare_loop_ms);
  if (l.ratio_to_bare_loop) object["ratio_to_bare_loop"] = readable(*l.ratio_to_bare_loop);
  if (l.bare_loop_loss) object["bare_loop_loss"] = *l.bare_loop_loss;
  if (l.lora_ms) object["lora_ms"] = readable(*l.lora_ms);
  if (l.lora_time_ratio) object["lora_time_ratio"] = readable(*l.lora_time_ratio);
  if (l.lora_memory_ratio) object["lora_memory_ratio"] = readable(*l.lora_memory_ratio);
  return object.dump();
}

std::string json_line(const MatmulLine& l) {
  const Object object = {{"bench", "matmul"},
                         {"m", l.m},
                         {"n", l.n},
                         {"k", l.k},
                         {"a_transposed", l.a_transposed},
                         {"b_transposed", l.b_transposed},
                         {"accumulate", l.accumulate},
                         {"way", l.way},
                         {"isa", l.isa},
                         {"threads", l.threads},
                         {"gflops", readable(l.gflops)},
                         {"float_gflops", readable(l.float_gflops)},
                         {"ratio", readable(l.ratio)}};
  return object.dump();
}

std::string json_line(const TokenizeLine& l) {
  const Object object = {{"bench", "tokenize"},
                         {"tokenizer", l.tokenizer},
                         {"vocabulary", l.vocabulary},
                         {"bytes", l.bytes},
                         {"tokens", l.tokens},
                         {"threads", l.threads},
                         {"load_ms", readable(l.load_ms)},
                         {"mb_per_second", readable(l.megabytes_per_second)}};
  return object.dump();
}

std::string json_line(const GenerateLine& l) {
  const Object object = {{"bench", "generate"},
                         {"stack", l.stack},
                         {"ranks", l.ranks},
                         {"threads", l.threads},
                         {"parameters", l.parameters},
                         {"tokens", l.tokens},
                         {"weight_bytes", l.weight_bytes},
                         {"cache_bytes", l.cache_bytes},
                         {"token_ms", readable(l.token_ms)},
                         {"read_ms", readable(l.read_ms)},
                         {"ratio", readable(l.ratio)},
                         {"tokens_per_second", readable(1e3 / l.token_ms)}};
  return object.dump();
}

std::string json_line(const LoadLine& l) {
  const Object object = {{"bench", "load"},
                         {"stack", l.stack},
                         {"ranks", l.ranks},
                         {"files", l.files},
                         {"bytes", l.bytes},
                         {"load_ms", readable(l.load_ms)},
                         {"read_ms", readable(l.read_ms)},
                         {"ratio", readable(l.ratio)},
                         {"gb_per_second", readable(static_cast<double>(l.bytes) / l.load_ms * 1e-6)}};
  return object.dump();
}

std::string json_line(const CommLine& l) {
  Object object = {{"bench", "comm"}, {"backend", l.backend}};
  if (!l.way.empty()) object["way"] = l.way;
  object.update({{"op", l.op},
                 {"bytes", l.bytes},
                 {"ranks", l.ranks},
                 {"threads", l.threads},
                 {"ms", readable(l.milliseconds)},
                 {"gb_per_second", readable(l.gb_per_second)},
                 {"memcpy_gb_per_second", readable(l.memcpy_gb_per_second)},
                 {"ratio", readable(l.ratio)}});
  if (l.library_milliseconds) object["library_ms"] = readable(*l.library_milliseconds);
  if (l.ratio_to_library) object["ratio_to_library"] = readable(*l.ratio_to_library);
  return object.dump();
}

std::string json_line(const OptimLine& l) {
  return Object({{"bench", "optim"},
                 {"precision", l.precision},
                 {"threads", l.threads},
                 {"parameters", l.parameters},
                 {"bytes_per_parameter", l.bytes_per_parameter},
                 {"ms", readable(l.milliseconds)},
                 {"gb_per_second", readable(l.gb_per_second)},
                 {"triad_gb_per_second", readable(l.triad_gb_per_second)},
                 {"ratio", readable(l.ratio)}})
      .dump();
}

std::string json_line(const MuonLine& l) {
  return Object({{"bench", "muon"},
                 {"precision", l.precision},
                 {"threads", l.threads},
                 {"parameters", l.parameters},
                 {"ms", readable(l.milliseconds)},
                 {"adamw_ms", readable(l.adamw_milliseconds)},
                 {"ratio", readable(l.ratio)},
                 {"gflops", readable(l.gflops)},
                 {"ranks", l.ranks},
                 {"work_balance", readable(l.work_balance)},
                 {"bytes_balance", readable(l.bytes_balance)}})
      .dump();
}

}  // namespace fsdp::bench
