// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/peers.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::train {

checkpoint::Peers peers_of(const comm::Ranks& ranks) {
  return {.rank = ranks.rank(),
          .on_all = [ranks](FunctionRef<void()> f) { comm::on_all_ranks(ranks, "checkpoint", f); },
          .gather =
              [ranks](std::string mine) {
                const std::int64_t length = std::ssize(mine);
                std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks.size()));
                ranks.gather_bytes(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)),
                                   {"checkpoint"});
                std::vector<std::string> texts;
                for (int rank = 0; rank < ranks.size(); ++rank) {  // one broadcast each, since lengths may differ a lot
                  std::string text = rank == ranks.rank() ? std::move(mine) : std::string();
                  text.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]));
                  ranks.broadcast(std::as_writable_bytes(std::span(text)), rank, {"checkpoint"});
                  texts.push_back(ranks.rank() == 0 ? std::move(text) : std::string());
                }
                return texts;
              }};
}

void agree_on_folder(const comm::Ranks& ranks, const std::filesystem::path& folder) {
  comm::agree_on_opened(
      ranks, comm::on_all_ranks(ranks, "what was opened", [&] { return checkpoint::folder_identity(folder); }));
}

}  // namespace fsdp::train
