// SPDX-License-Identifier: Apache-2.0
#include "mpi_signal.hpp"

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <unistd.h>

namespace fsdp::comm {
namespace {

std::atomic<const Monitor*> waiting_in = nullptr;
std::atomic<int> rank_of_process = 0;
static_assert(std::atomic<const Monitor*>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

/// A line of text made without memory or locks, as a signal handler must.
class Line {
 public:
  void add(std::string_view text) {
    for (char character : text)
      if (length_ + 1 < sizeof(text_)) text_[length_++] = character;
  }
  void add(std::int64_t number) {
    char digits[24];
    std::size_t at = sizeof(digits);
    std::uint64_t rest = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    if (number < 0) digits[--at] = '-';
    add(std::string_view(digits + at, sizeof(digits) - at));
  }
  void write_to_stderr() {
    text_[length_++] = '\n';
    const ssize_t written = write(STDERR_FILENO, text_, length_);
    static_cast<void>(written);
  }

 private:
  char text_[512];
  std::size_t length_ = 0;
};

extern "C" void report_termination(int signal) {
  Line line;
  line.add("rank ");
  line.add(std::int64_t{rank_of_process.load()});
  line.add(": ended by its launcher (SIGTERM)");
  if (const Monitor* const monitor = waiting_in.load()) {
    const Record& record = monitor->current;
    line.add(" while it waited in ");
    line.add(name_of(record.op));
    if (!record.label.what.empty()) {
      line.add(" of ");
      line.add(record.label.what);
    }
    if (record.label.unit >= 0) {
      line.add(", unit ");
      line.add(std::int64_t{record.label.unit});
    }
    line.add(", sequence ");
    line.add(record.sequence);
  }
  line.write_to_stderr();
  _exit(128 + signal);
}

}  // namespace

WaitingNow::WaitingNow(const Monitor& monitor) : outer_(waiting_in.exchange(&monitor)) {}
WaitingNow::~WaitingNow() { waiting_in.store(outer_); }

void install_termination_report(int rank) {
  rank_of_process.store(rank);
  struct sigaction action {};
  action.sa_handler = report_termination;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace fsdp::comm
