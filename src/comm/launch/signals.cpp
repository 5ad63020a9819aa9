// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/signals.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "termination_report.hpp"

namespace fsdp::comm {
namespace {

// A handler has no object: what follows is the process's, as its handlers are.
std::atomic<const std::atomic<const Monitor*>*> waiting_in = nullptr;  ///< of the TerminationReport that lives
std::atomic<int> rank_of_process = -1;                                 ///< the same; -1: no launcher may end it
std::atomic<int> catching = 0;                                         ///< number of live CatchSignals
std::atomic<int> stop_asked = 0;                                       ///< the first signal that asked for it
std::atomic<bool> terminated = false;                                  ///< whether SIGTERM or SIGINT came
std::atomic<std::int64_t> saves_asked = 0;
static_assert(std::atomic<const std::atomic<const Monitor*>*>::is_always_lock_free &&
              std::atomic<const Monitor*>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

void record_stop(int signal) {
  int none = 0;
  stop_asked.compare_exchange_strong(none, signal);
}

/// A line of text, built without allocation or locks, as a signal handler requires.
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

/// Prints "rank 1: ended by its launcher (SIGTERM) while it waited in all_gather of weights, unit 3, sequence 17".
void report_termination(std::string_view then) {
  Line line;
  line.add("rank ");
  line.add(std::int64_t{rank_of_process.load()});
  line.add(": ended by its launcher (SIGTERM)");
  const auto* const place = waiting_in.load();
  if (const Monitor* const monitor = place == nullptr ? nullptr : place->load()) {
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
  line.add(then);
  line.write_to_stderr();
}

void on_signal(int signal, siginfo_t* from, void*) {
  if (signal == SIGUSR1) {
    saves_asked.fetch_add(1);
    return;
  }
  record_stop(signal);
  if (signal == SIGHUP) return;
  const bool again = terminated.exchange(true);
  const bool ends = again || catching.load() == 0;
  if (signal == SIGTERM && rank_of_process.load() >= 0 && (ends || from->si_pid == getppid()))
    report_termination(ends ? "" : "; the step ends and is saved if the launcher waits so long");
  if (ends) _exit(128 + signal);
}

void install(int signal) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

constexpr std::array caught = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};
std::array<struct sigaction, caught.size()> before;
std::mutex installing;

}  // namespace

CatchSignals::CatchSignals() {
  const std::lock_guard lock(installing);
  if (catching.load() == 0) {
    for (std::size_t i = 0; i < caught.size(); ++i) sigaction(caught[i], nullptr, &before[i]);
    stop_asked.store(0);
    terminated.store(false);
    saves_asked.store(0);
  }
  catching.fetch_add(1);
  for (std::size_t i = 0; i < caught.size(); ++i) {
    if (caught[i] == SIGPIPE && before[i].sa_handler == SIG_DFL)
      std::signal(SIGPIPE, SIG_IGN);
    else if (caught[i] != SIGPIPE && (caught[i] != SIGHUP || before[i].sa_handler != SIG_IGN))
      install(caught[i]);
  }
}

CatchSignals::~CatchSignals() {
  const std::lock_guard lock(installing);
  if (catching.fetch_sub(1) > 1) return;
  for (std::size_t i = 0; i < caught.size(); ++i) sigaction(caught[i], &before[i], nullptr);
}

SignalRequests CatchSignals::asked() const { return {.stop = stop_asked.load(), .saves = saves_asked.load()}; }

void CatchSignals::ask_to_stop(int signal) const { record_stop(signal); }

void CatchSignals::throw_if_stopped(const std::string& then) const {
  if (const int signal = asked().stop; signal != 0) throw StoppedError(signal, name_of_stop(signal) + (": " + then));
}

const char* name_of_stop(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGPIPE: return "SIGPIPE";
    default: return "SIGTERM";
  }
}

TerminationReport::TerminationReport(int rank, const std::atomic<const Monitor*>& waiting_in_place) {
  waiting_in.store(&waiting_in_place);
  rank_of_process.store(rank);
  sigaction(SIGTERM, nullptr, &before_);
  install(SIGTERM);
}

TerminationReport::~TerminationReport() {
  sigaction(SIGTERM, &before_, nullptr);
  rank_of_process.store(-1);
  waiting_in.store(nullptr);
}

}  // namespace fsdp::comm
