// SPDX-License-Identifier: Apache-2.0
/// @file
/// Each rank but 0 writes a question with a number it drew; rank 0 answers with a file that repeats all numbers.
/// Whoever finds its own number there has this job's bytes, and takes its question away; then rank 0 takes the answer
/// away.
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include <unistd.h>

#include <comm/monitor.hpp>
#include <comm/poll.hpp>

#include "rendezvous_message.hpp"

namespace fsdp::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Message = RendezvousMessage;
using Path = std::filesystem::path;

Path question_file(const Path& file, int rank) { return Path(file.string() + "." + std::to_string(rank)); }

/// All of it or nothing: nobody sees half a file.
void write(const Path& file, std::span<const std::byte> bytes) {
  const Path draft = file.string() + ".draft-" + std::to_string(getpid()) + "-" + std::to_string(draw_number());
  std::ofstream out(draft, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(draft, file, error);
  if (!out || error) {
    std::error_code ignored;
    std::filesystem::remove(draft, ignored);
    throw InputError(message("rendezvous: cannot write ", file.string(), "; its folder must be there for all ranks"));
  }
}

std::vector<std::byte> read(const Path& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<std::byte> bytes;
  for (char c; in.get(c);) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

void forget(const Path& file) {
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

/// A question that reads as one; whoever wrote it.
std::optional<Message> question_of(const Path& file) {
  const std::vector<std::byte> bytes = read(file);
  Message question;
  if (bytes.size() != sizeof question) return std::nullopt;
  std::memcpy(&question, bytes.data(), sizeof question);
  return question.mark == rendezvous_mark ? std::optional(question) : std::nullopt;
}

/// Rank 0's answer to one question: a message of the same rank and number, in a row of one for each rank but 0.
std::optional<Message> answer_to(const Message& question, const std::vector<std::byte>& answers) {
  for (std::size_t at = 0; at + sizeof(Message) <= answers.size(); at += sizeof(Message)) {
    Message answer;
    std::memcpy(&answer, answers.data() + at, sizeof answer);
    if (answer.mark == rendezvous_mark && answer.rank == question.rank && answer.number == question.number)
      return answer;
  }
  return std::nullopt;
}

void ask(const Meeting& meeting, const Path& file, std::span<std::byte> bytes) {
  const Path own = question_file(file, meeting.rank);
  const Message question{.rank = meeting.rank,
                         .size = meeting.size,
                         .bytes = static_cast<std::int64_t>(bytes.size()),
                         .number = draw_number()};
  write(own, std::as_bytes(std::span(&question, 1)));
  std::vector<std::byte> answers;
  std::optional<Message> answer;
  const bool answered = poll_until(Clock::now() + meeting.deadline, [&] {
    answers = read(file);
    answer = answer_to(question, answers);
    return answer.has_value();
  });
  forget(own);
  require<InputError>(answered, "rendezvous at ", file.string(), ": rank ", meeting.rank,
                      " got no answer from rank 0 within ", in_seconds(meeting.deadline),
                      "; does rank 0 run, and does it see the same file?");
  require_ours(question, *answer, file.string());
  const std::size_t begin = answers.size() - bytes.size();
  require<InputError>(answers.size() >= bytes.size() && begin % sizeof(Message) == 0, "rendezvous at ", file.string(),
                      ": ", answers.size(), " bytes are not rank 0's answer");
  std::memcpy(bytes.data(), answers.data() + begin, bytes.size());
}

void serve(const Meeting& meeting, const Path& file, std::span<std::byte> bytes) {
  std::vector<bool> came(static_cast<std::size_t>(meeting.size));
  std::vector<Message> answers(static_cast<std::size_t>(meeting.size - 1));
  std::string wrong;
  // Questions may be an earlier job's until their rank of this job writes its own, so answers follow them.
  const bool all = poll_until(Clock::now() + meeting.deadline, [&] {
    bool waiting = false;
    bool changed = false;
    for (int rank = 1; rank < meeting.size; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      const std::optional<Message> question = question_of(question_file(file, rank));
      waiting = waiting || question || !came[index];
      if (!question) continue;
      came[index] = question->size == meeting.size && question->bytes == static_cast<std::int64_t>(bytes.size());
      Message& answer = answers[index - 1];
      const Message before = std::exchange(answer, {.rank = rank,
                                                    .size = meeting.size,
                                                    .bytes = static_cast<std::int64_t>(bytes.size()),
                                                    .number = question->number});
      changed = changed || !(before == answer);
    }
    if (changed) {
      std::vector<std::byte> content;
      const auto append = [&](std::span<const std::byte> part) {
        content.insert(content.end(), part.begin(), part.end());
      };
      append(std::as_bytes(std::span(answers)));
      append(bytes);
      write(file, content);
    }
    return !waiting;
  });
  forget(file);
  require<InputError>(
      all, "rendezvous at ", file.string(), ": ",
      missing_ranks(came).empty() ? "not all ranks took the answer" : missing_ranks(came) + " did not come", " within ",
      in_seconds(meeting.deadline), "; do all ranks see the same file?");
}

}  // namespace

void meet_over_file(const Meeting& meeting, const Path& file, std::span<std::byte> bytes) {
  if (meeting.size == 1) return;
  if (meeting.rank == 0)
    serve(meeting, file, bytes);
  else
    ask(meeting, file, bytes);
}

}  // namespace fsdp::comm
