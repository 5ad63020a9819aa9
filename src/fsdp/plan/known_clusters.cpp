// SPDX-License-Identifier: Apache-2.0
// The clusters that are known by name. Each number is followed by its source; "assumed" means that there is none.
// docs/plan.md lists the figures that were measured.
#include <algorithm>
#include <array>
#include <string>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/plan/cluster.hpp>

namespace fsdp::plan {
namespace {

constexpr std::int64_t mebi = std::int64_t{1} << 20;
constexpr std::int64_t tera = 1'000'000'000'000;

/// What NVIDIA's nodes of 8 have in common: NVSwitch inside, an InfiniBand port of 400 Gb/s for each GPU.
Cluster nvidia_node() {
  return {
      .device = "cuda",
      .ranks = 8,                         // DGX and HGX: 8 GPUs in a node
      .ranks_per_node = 8,                // the same
      .threads = 14,                      // DGX H100, H200 and B200 user guides: 112 cores for 8 GPUs
      .host_memory = 2 * tera,            // DGX H100, H200 and B200 user guides: 2 TB
      .runtime_bytes = 1'060'000'000,     // NVIDIA/nccl issue 1685: context and NCCL on 8 x H100, before an all-to-all
      .communicator_bytes = 688'000'000,  // NVIDIA/nccl issue 964: each group of 3 or 4 A100 over NVLink, after a sum
      .exchange_bytes = 3'280'000'000,    // NVIDIA/nccl issue 1685: 4.34 GB after the first all-to-all
      .collective_latency = 8.4e-6,       // NCCL 2.30, tuning.cc: base latency of Ring, protocol Simple
      .node_latency = 3.4e-6,             // the same: hardware latency of Ring over NVLink, Simple
      .network_latency = 14e-6,           // the same: over the network
      .network_bandwidth = 8 * 47e9,      // NVIDIA/nccl-tests issue 290: 46 to 48 GB/s for each NDR port
      .host_bandwidth = 48e9,             // NCCL 2.30, topo.cc: PCIe 5.0 x16
      .collectives_have_queues = true,    // comm::Nccl: a stream for each communicator
      .beside_collectives = 1 / 1.189,    // arXiv 2507.03114: 18.9 % slower on average, on A100, H100, MI210, MI250
      .gathers_in_stages = false,         // NCCL's all-gather between nodes: Ring
  };
}

Cluster h100() {
  Cluster node = nvidia_node();
  node.memory = 81559 * mebi;  // nvidia-smi, memory.total of an H100 SXM5 80GB
  node.peak_bf16 = 989.4e12;   // H100 data sheet, SXM5, dense
  node.peak_fp32 = 66.9e12;    // the same
  // Fitted to three steps of a Llama of 1.5 billion weights on one H100 SXM5 80GB (docs/measured.md): 4 x 4096 and
  // 1 x 4096 tokens with cuDNN, 4 x 4096 without. Alone cuBLASLt multiplies at 786 TFLOP/s; the card's power then
  // drops.
  node.matmul_bf16 = 703e12;
  node.matmul_fp32 = 47.5e12;      // assumed: bf16's share of the peak, 71 %
  node.attention = 430e12;         // fitted there, cuDNN's kernels
  node.attention_own = 238.5e12;   // measured there: Tessera's kernels, forward 361, backward 210, weights 2 : 5
  node.memory_bandwidth = 2.3e12;  // fitted there
  node.node_bandwidth = 370.8e9;   // NCCL 2.30, topo.h: 18 NVLinks of 20.6 GB/s
  return node;
}

Cluster h200() {
  Cluster node = h100();           // the same chip and power; assumed: rates of h100
  node.memory = 143771 * mebi;     // nvidia-smi, memory.total of an H200 SXM
  node.memory_bandwidth = 3.3e12;  // H200 data sheet, 4.8 TB/s; assumed: the share that h100 reaches, 69 %
  return node;
}

Cluster b200() {
  Cluster node = nvidia_node();
  node.memory = 183359 * mebi;     // nvidia-smi, memory.total of a B200
  node.peak_bf16 = 2250e12;        // HGX B200 data sheet, dense
  node.peak_fp32 = 80e12;          // the same
  node.matmul_bf16 = 1745e12;      // stas00/ml-engineering, maximum achievable matmul FLOPS: B200 SXM
  node.matmul_fp32 = 62e12;        // assumed: bf16's share of the peak, 77.6 %
  node.attention = 978e12;         // assumed: h100's share of the peak, 43 %
  node.attention_own = 542e12;     // the same, 24 %
  node.memory_bandwidth = 5.5e12;  // HGX B200 data sheet, 8 TB/s; assumed: the share that h100 reaches, 69 %
  node.node_bandwidth = 721.8e9;   // NCCL 2.30, topo.h: 18 NVLinks of 40.1 GB/s
  return node;
}

/// What nodes of two sockets with a port of 100 Gb/s Ethernet have in common: a rank for each socket.
Cluster two_sockets() {
  return {
      .device = "cpu",
      .ranks = 2,                   // one for each socket, so that its memory is local
      .ranks_per_node = 2,          // the same
      .runtime_bytes = 256 * mebi,  // assumed: code, thread stacks, MPI's buffers
      .communicator_bytes = 0,      // communicators and exchanges need no additional buffers
      .exchange_bytes = 0,
      .collective_latency = 2e-6,        // assumed
      .node_latency = 1e-6,              // assumed: a message in shared memory
      .node_bandwidth = 13e9,            // measured: Open MPI 4.1.4, 2 ranks, 64 MB: all-gather 11 to 16 GB/s
      .network_latency = 30e-6,          // assumed: TCP
      .network_bandwidth = 11.8e9,       // 100 Gb/s, of which frames of 1500 bytes leave 94 % to TCP
      .collectives_have_queues = false,  // the ranks' cores copy
      .gathers_in_stages = false,        // comm::Mpi: every rank sends to every other rank
  };
}

Cluster epyc() {
  Cluster node = two_sockets();
  node.threads = 96;                     // EPYC 9654 data sheet: 96 cores
  node.memory = 384 * 1024 * mebi;       // 12 modules of 32 GiB for each socket
  node.host_memory = 768 * 1024 * mebi;  // the same of both
  node.peak_bf16 = 21.8e12;       // EPYC 9654 data sheet: 96 cores, 3.55 GHz on all; Zen 4: 64 FLOP a cycle in bf16
  node.peak_fp32 = 10.9e12;       // the same, 32 FLOP a cycle
  node.matmul_bf16 = 19.7e12;     // measured: oneDNN 2.6.3 on two Zen 4 cores, 390 to 430 GFLOP/s; times 48
  node.matmul_fp32 = 8.7e12;      // the same: 150 to 215 GFLOP/s; times 48
  node.attention = 11.7e12;       // measured: causal, sequence 4096, on two Zen 4 cores, 243 GFLOP/s; times 48
  node.memory_bandwidth = 369e9;  // EPYC 9654 data sheet: 460.8 GB/s for each socket; assumed: 80 % of it
  node.host_bandwidth = 184e9;    // half of that: a copy reads and writes
  return node;
}

Cluster xeon() {
  Cluster node = two_sockets();
  node.threads = 56;                     // Xeon Platinum 8480+ data sheet: 56 cores
  node.memory = 256 * 1024 * mebi;       // 8 modules of 32 GiB for each socket
  node.host_memory = 512 * 1024 * mebi;  // the same of both
  node.peak_bf16 = 229e12;        // Xeon Platinum 8480+ data sheet: 56 cores, 2.0 GHz; AMX: 2048 FLOP a cycle in bf16
  node.peak_fp32 = 7.2e12;        // the same; AVX-512: 64 FLOP a cycle
  node.matmul_bf16 = 115e12;      // assumed: half of the peak
  node.matmul_fp32 = 5.7e12;      // assumed: 80 % of the peak
  node.attention = 34e12;         // assumed: 30 % of the matmuls' rate, since its blocks are small for AMX
  node.memory_bandwidth = 246e9;  // Xeon Platinum 8480+ data sheet: 307.2 GB/s for each socket; assumed: 80 % of it
  node.host_bandwidth = 123e9;    // half of that: a copy reads and writes
  return node;
}

}  // namespace

std::span<const KnownCluster> known_clusters() {
  static const std::array list = {
      KnownCluster{"h100", "nodes of 8 H100 SXM5 80GB, NVLink 4, 8 x 400 Gb/s InfiniBand", h100()},
      KnownCluster{"h200", "nodes of 8 H200 SXM 141GB, NVLink 4, 8 x 400 Gb/s InfiniBand", h200()},
      KnownCluster{"b200", "nodes of 8 B200 SXM 180GB, NVLink 5, 8 x 400 Gb/s InfiniBand", b200()},
      KnownCluster{"epyc", "nodes of 2 EPYC 9654, a rank for each, 100 Gb/s Ethernet", epyc()},
      KnownCluster{"xeon", "nodes of 2 Xeon Platinum 8480+, a rank for each, 100 Gb/s Ethernet", xeon()},
  };
  return list;
}

std::vector<std::string> known_cluster_names() {
  std::vector<std::string> names;
  for (const KnownCluster& known : known_clusters()) names.emplace_back(known.name);
  return names;
}

Cluster known_cluster(std::string_view name, std::int64_t ranks) {
  const auto known = std::ranges::find(known_clusters(), name, &KnownCluster::name);
  if (known == known_clusters().end())
    throw InputError(message("no cluster is called '", name, "'; ", suggestion(name, known_cluster_names())));
  Cluster cluster = known->cluster;
  if (ranks > 0) cluster.ranks = ranks;
  cluster.validate();
  return cluster;
}

Cluster usual_cluster(std::string_view device) {
  const std::span<const KnownCluster> known = known_clusters();
  const auto found =
      std::ranges::find_if(known, [&](const KnownCluster& each) { return each.cluster.device == device; });
  return found == known.end() ? Cluster{} : found->cluster;
}

}  // namespace fsdp::plan
