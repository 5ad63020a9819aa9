# Turns sources for Tessera 0.3 into sources for 0.4. For sed -E.
s#<tessera/trainer/text/(chat|chat_template|tokenizer|tokenizer_config)\.hpp>#<tessera/text/\1.hpp>#
s#<tessera/trainer/data/mixture\.hpp>#<tessera/trainer/data/sampler.hpp>#
s#<tessera/fsdp/sharding/proof\.hpp>#<tessera/fsdp/sharding/own_strategy.hpp>#
s#<tessera/trainer/generate/sample_text\.hpp>#<tessera/trainer/generate/samples.hpp>#
s#<tessera/trainer/report/digest_comparison\.hpp>#<tessera/trainer/report/digest_diff.hpp>#
s#<tessera/trainer/report/progress_line\.hpp>#<tessera/trainer/report/byte_progress.hpp>#
s#<tessera/trainer/run/commands\.hpp>#<tessera/trainer/run/train.hpp>\n\#include <tessera/trainer/run/inference_commands.hpp>#
s#<tessera/trainer/run/auto_(budget|residency)\.hpp>#<tessera/trainer/run/auto_budgets.hpp>#
s#<tessera/trainer/run/offload_advice\.hpp>#<tessera/trainer/run/memory_advice.hpp>#
s#<tessera/trainer/run/dry_runs\.hpp>#<tessera/trainer/run/planned_step.hpp>#
s#<tessera/trainer/run/processor\.hpp>#<tessera/trainer/run/arguments.hpp>#
s#<tessera/trainer/run/plan_options\.hpp>#<tessera/trainer/flags/options.hpp>#
s#<tessera/fsdp/execution/(shared_sequences|sequence_stages|sequence_exchanges|stage_memory)\.hpp>#<tessera/fsdp/sequence/\1.hpp>#
s#<tessera/fsdp/plan/middle_parts\.hpp>#<tessera/fsdp/sequence/middle_parts.hpp>#
s#<tessera/fsdp/nn/attention_slices\.hpp>#<tessera/fsdp/sequence/attention_slices.hpp>#
s#<tessera/fsdp/testing/planned_bytes\.hpp>#<tessera/fsdp/testing/results.hpp>#
s#<tessera/fsdp/testing/between_checkpoints\.hpp>#<tessera/fsdp/testing/model_runs.hpp>#
s#<tessera/fsdp/module/pass_progress\.hpp>#<tessera/fsdp/module/module_plan.hpp>#
s#<tessera/fsdp/module/parameter_shard\.hpp>#<tessera/fsdp/module/group_tensors.hpp>#
s#<tessera/fsdp/precision/local\.hpp>#<tessera/fsdp/precision/policies.hpp>#
s#<tessera/fsdp/core/gradient_view\.hpp>#<tessera/fsdp/core/tensor.hpp>#
s#<tessera/fsdp/module/optimizer_group\.hpp>#<tessera/fsdp/module/units.hpp>#
s#<tessera/comm/together\.hpp>#<tessera/comm/agreement.hpp>#
s#<tessera/fsdp/training/optimizer_instances\.hpp>#<tessera/fsdp/training/run_time_optimizer.hpp>#
s#<tessera/fsdp/execution/run_shape\.hpp>#<tessera/fsdp/execution/step_size.hpp>#
