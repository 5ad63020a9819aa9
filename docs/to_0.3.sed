# Turns sources for Tessera 0.2 into sources for 0.3: headers, and names whose namespace changed. For sed -E.
s#<fsdp/fsdp\.hpp>#<tessera/trainer/train_main.hpp>#
s#<fsdp/train/(agreement|cores)\.hpp>#<tessera/comm/\1.hpp>#
s#<fsdp/train/(launch|program|training)\.hpp>#<tessera/fsdp/training/\1.hpp>#
s#<fsdp/train/(peers|shards_io)\.hpp>#<tessera/fsdp/checkpoint/\1.hpp>#
s#<fsdp/train/(batches)\.hpp>#<tessera/trainer/data/\1.hpp>#
s#<fsdp/train/(byte_count|flag_set|flags|learning_rate|model_choice|optimizer_choice|options|ranges)\.hpp>#<tessera/trainer/flags/\1.hpp>#
s#<fsdp/train/(chat_session|generation|generation_config|sample_text|samples|sampling)\.hpp>#<tessera/trainer/generate/\1.hpp>#
s#<fsdp/train/#<tessera/trainer/run/#
s#<fsdp/(data|report|text)/#<tessera/trainer/\1/#
s#<fsdp/module/(count_exchange|executor|offloaded_inputs|sequence_cache|uploaded_batch)\.hpp>#<tessera/fsdp/execution/\1.hpp>#
s#<fsdp/optim/(training_step)\.hpp>#<tessera/fsdp/execution/\1.hpp>#
s#<fsdp/#<tessera/fsdp/#
s#<comm/(any_queue|backend|checks|collectives|communicator|launch|mesh|monitor|mpi|mpi_rank|mpi_staged|nccl|nccl_rank|nccl_table|pending|poll|queued_core|ranks|rendezvous|self|signals|simulated|threads|threads_rank|transfer)\.hpp>#<tessera/comm/\1.hpp>#
s#<tiling/(budget|chosen|policies|problem|tile_plan)\.hpp>#<tessera/tiling/\1.hpp>#
s#(^|[^A-Za-z0-9_:])(fsdp::)?train::(agree_on_(arguments|cores|opened)|Complaint|complaint_in_flight|cores_shared_by|gather_texts|on_all_ranks)\b#\1\2comm::\3#g
s#(^|[^A-Za-z0-9_:])(fsdp::)?train::(rank_threads|require_same_texts|shared_cores|SharedCores|threads_per_rank|throw_first)\b#\1\2comm::\3#g
s#(^|[^A-Za-z0-9_:])(fsdp::)?train::(Range|require_in_range)\b#\1fsdp::\3#g
