// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/signals.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <string_view>

#include "process_end.hpp"

namespace fsdp::comm {
namespace {

// A signal handler has no object, so this state is global to the process, like the handlers themselves.
std::atomic<const std::atomic<const Monitor*>*> waiting_in = nullptr;  ///< for the live TerminationReport
std::atomic<int> rank_of_process = -1;                                 ///< rank of the live TerminationReport; -1: none
std::atomic<int> catching = 0;                                         ///< number of live CatchSignals
std::atomic<int> catching_stops = 0;                                   ///< number of live CatchSignals that catch stops
std::atomic<int> stop_asked = 0;           ///< the first signal that requested a stop; 0: none
std::atomic<std::int64_t> stopped_at = 0;  ///< time of the first SIGTERM or SIGINT; 0: neither came
std::atomic<std::int64_t> saves_asked = 0;
std::atomic<const char*> answer = nullptr;  ///< text that the leading rank prints after the first stop signal
std::atomic<bool> on_terminal = false;      ///< whether stderr is a terminal, which may show a progress line
static_assert(std::atomic<const std::atomic<const Monitor*>*>::is_always_lock_free &&
              std::atomic<const Monitor*>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free &&
              std::atomic<const char*>::is_always_lock_free);

constexpr std::int64_t one_signal = 1'000'000'000;  ///< nanoseconds within which several signals count as one

std::int64_t monotonic_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void record_stop(int signal) {
  int none = 0;
  stop_asked.compare_exchange_strong(none, signal);
}

/// A line of text, built without allocation or locks, as a signal handler requires.
class Line {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    (add_part(parts), ...);
  }
  void write_to_stderr() {
    text_[length_++] = '\n';
    const ssize_t written = write(STDERR_FILENO, text_, length_);
    static_cast<void>(written);
  }

 private:
  void add_part(std::string_view text) {
    for (char character : text)
      if (length_ + 1 < sizeof(text_)) text_[length_++] = character;
  }
  void add_part(std::int64_t number) {
    char digits[24];
    add_part(std::string_view(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr));
  }

  char text_[512];
  std::size_t length_ = 0;
};

/// Returns the monitor of the collective that the process waits in; nullptr if it waits in none.
const Monitor* awaited() {
  const auto* const place = waiting_in.load();
  return place == nullptr ? nullptr : place->load();
}

/// Prints "rank 1: ended by its launcher (SIGTERM) while it waited in all_gather of weights, unit 3, sequence 17".
void report_termination() {
  Line line;
  line.add("rank ", std::int64_t{rank_of_process.load()}, ": ended by its launcher (SIGTERM)");
  if (const Monitor* const monitor = awaited()) {
    const Record& record = monitor->current;
    line.add(" while it waited in ", name_of(record.op));
    if (!record.label.what.empty()) line.add(" of ", record.label.what);
    if (record.label.unit >= 0) line.add(", unit ", std::int64_t{record.label.unit});
    line.add(", sequence ", record.sequence);
  }
  line.write_to_stderr();
}

/// Prints "tessera: SIGINT: saves after this step; once more ends without saving". `by_launcher`: the launcher sent the
/// signal; mpirun kills a rank some time after SIGTERM.
void print_answer(const char* text, int signal, bool by_launcher) {
  Line line;
  if (on_terminal.load()) line.add("\r\033[K");
  line.add("tessera: ", name_of_stop(signal), ": ", text);
  if (by_launcher) line.add("; the launcher may end it sooner");
  line.write_to_stderr();
}

void on_signal(int signal, siginfo_t* from, void*) {
  if (signal == SIGUSR1) {
    saves_asked.fetch_add(1);
    return;
  }
  record_stop(signal);
  if (signal == SIGHUP) return;
  const std::int64_t now = monotonic_nanoseconds();
  std::int64_t first = 0;
  const bool again = !stopped_at.compare_exchange_strong(first, now);
  const bool ends = catching_stops.load() == 0 || (again && now - first >= one_signal);
  const bool by_launcher = signal == SIGTERM && rank_of_process.load() >= 0;
  if (ends) {
    if (by_launcher) report_termination();
    _exit(128 + signal);
  }
  const int number = errno;
  const char* const text = answer.load();
  const bool from_launcher = by_launcher && from->si_pid == getppid();
  if (!again && text != nullptr) print_answer(text, signal, from_launcher);
  // mpirun also sends SIGTERM to the survivors after a rank died: the collective that they wait in helps to find the
  // cause.
  if (!again && text == nullptr && from_launcher && awaited() != nullptr) report_termination();
  errno = number;
}

void install(int signal) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

constexpr std::array caught = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};
constexpr std::array stops = {SIGTERM, SIGINT, SIGHUP};
std::array<struct sigaction, caught.size()> before;
std::mutex installing;

/// Returns the action of a signal before it was caught.
const struct sigaction& action_before(int signal) {
  std::size_t at = 0;
  while (caught[at] != signal) ++at;
  return before[at];
}

}  // namespace

CatchSignals::CatchSignals(Later) {
  const std::lock_guard lock(installing);
  if (catching.load() == 0) {
    for (std::size_t i = 0; i < caught.size(); ++i) sigaction(caught[i], nullptr, &before[i]);
    saves_asked.store(0);
    stop_asked.store(0);
  }
  catching.fetch_add(1);
  install(SIGUSR1);
  if (action_before(SIGPIPE).sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

CatchSignals::~CatchSignals() {
  const std::lock_guard lock(installing);
  if (catches_stops_ && catching_stops.fetch_sub(1) == 1) {
    for (const int signal : stops) sigaction(signal, &action_before(signal), nullptr);
    answer.store(nullptr);
  }
  if (catching.fetch_sub(1) > 1) return;
  for (const int signal : {SIGUSR1, SIGPIPE}) sigaction(signal, &action_before(signal), nullptr);
}

void CatchSignals::catch_stops(const char* answered) {
  const std::lock_guard lock(installing);
  if (catches_stops_) return;
  if (answered != nullptr) {
    on_terminal.store(isatty(STDERR_FILENO) == 1);
    answer.store(answered);
  }
  catches_stops_ = true;
  if (catching_stops.load() == 0) stopped_at.store(0);
  catching_stops.fetch_add(1);
  for (const int signal : stops)
    if (signal != SIGHUP || action_before(signal).sa_handler != SIG_IGN) install(signal);
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
