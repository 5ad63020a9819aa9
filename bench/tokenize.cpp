// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tokenize`: the rate of a tokenizer on documents in memory, and the time for loading the tokenizer.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/text/tokenizer.hpp>

#include "../src/trainer/data/files/input_files.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {
namespace {

constexpr std::size_t most_bytes = 64'000'000;

/// Reads a file, or the files in a folder and its subfolders until more than `most_bytes` have been read.
std::vector<std::string> documents_of(const std::filesystem::path& path) {
  std::vector<std::string> documents;
  std::size_t bytes = 0;
  const data::InputFiles inputs = data::input_files(std::span(&path, 1));
  for (const data::InputFile& file : inputs.files) {
    std::ifstream stream(file.path, std::ios::binary);
    documents.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    bytes += documents.back().size();
    if (bytes > most_bytes) break;
  }
  require<InputError>(bytes > 0, "bench tokenize: there is no text in ", path.string(), "; name some by --text");
  return documents;
}

std::int64_t encode_all(const text::Tokenizer& tokenizer, const std::vector<std::string>& documents, int threads) {
  std::int64_t tokens = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : tokens)
  for (std::size_t i = 0; i < documents.size(); ++i) tokens += std::ssize(tokenizer.encode(documents[i]));
  return tokens;
}

}  // namespace

void measure_tokenize(const BenchOptions& options, const train::FlagSet&) {
  require<InputError>(!options.model.empty(), "bench tokenize: name a tokenizer.json or its folder by --model");
  const std::vector<std::string> documents = documents_of(options.text);
  std::int64_t bytes = 0, tokens = 0;
  for (const std::string& document : documents) bytes += std::ssize(document);
  double best = 0;
  for (std::int64_t i = 0; i < options.repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const text::Tokenizer read = text::Tokenizer::read(options.model);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  const text::Tokenizer tokenizer = text::Tokenizer::read(options.model);
  std::vector<int> teams = {1};
  if (device::available_cores() > 1) teams.push_back(device::available_cores());
  Rounds rounds;
  for (const int threads : teams) rounds.add([&, threads] { tokens = encode_all(tokenizer, documents, threads); });
  rounds.run(options.repeats);
  for (std::size_t i = 0; i < teams.size(); ++i)
    Line("tokenize")
        .add("tokenizer", options.model, "vocabulary", tokenizer.vocabulary_size(), "bytes", bytes)
        .add("tokens", tokens, "threads", teams[i], "load_ms", 1e3 * best)
        .add("mb_per_second", static_cast<double>(bytes) / 1e6 / rounds.median_seconds(i))
        .print();
}

}  // namespace fsdp::bench
