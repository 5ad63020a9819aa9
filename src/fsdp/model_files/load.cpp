// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/load.hpp>

#include <tessera/fsdp/checkpoint/folder.hpp>

namespace fsdp::train {

checkpoint::ModelFiles open_agreed_model(const comm::Ranks& ranks, const std::string& folder,
                                         const checkpoint::ReadModelListing& read, const checkpoint::Warn& warn,
                                         const std::string& adapter) {
  checkpoint::ModelFiles files =
      comm::together(ranks, "model", [&] { return checkpoint::open_model(folder, read, warn, adapter); });
  checkpoint::agree_on_folder(ranks, folder);
  if (!adapter.empty()) checkpoint::agree_on_folder(ranks, adapter);
  return files;
}

}  // namespace fsdp::train
