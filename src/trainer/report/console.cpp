// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/console.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <system_error>

#include <stdio.h>
#include <unistd.h>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::report {

ProgressLine::~ProgressLine() {
  if (width_ > 0) std::fprintf(stderr, "\r%*s\r", width_, "");
}

void ProgressLine::show(const std::string& text) {
  if (::isatty(STDERR_FILENO) != 1) return;
  width_ = std::max(width_, std::fprintf(stderr, "\r%s", text.c_str()));
}

ByteProgress::ByteProgress(const std::string& doing) : doing_(printable(doing)) {}

void ByteProgress::show(std::int64_t done, std::int64_t all, const std::string& more) {
  const int percent = static_cast<int>(done * 100 / std::max<std::int64_t>(all, 1));
  if (percent == percent_) return;
  percent_ = percent;
  line_.show(message(doing_, " ", bytes_text(done), " of ", bytes_text(all), ", ", percent, " %", more));
}

namespace {

constexpr std::int64_t bar_width = 24;

/// Returns 8123.4 as "8,123".
std::string grouped(double value) {
  return count_text(std::llround(std::isfinite(value) ? std::clamp(value, 0.0, 1e15) : 0.0));
}

std::string short_bytes_text(std::int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? decimal_text(mib, 0) + " MiB" : decimal_text(mib / 1024, 2) + " GiB";
}

/// Returns the target of a descriptor, such as "/dev/pts/3" or "pipe:[123]"; empty if it is unknown. Open MPI's mpirun
/// gives its ranks their own terminal and pipes, so that the launcher's descriptor is read instead.
std::string target_of(int descriptor) {
  std::error_code error;
  const std::string process = comm::launched_by_open_mpi() ? std::to_string(::getppid()) : "self";
  return std::filesystem::read_symlink("/proc/" + process + "/fd/" + std::to_string(descriptor), error).string();
}

}  // namespace

ConsoleStyle style_of(std::FILE* stream) {
  const std::string_view term = environment("TERM");
  const std::string target = comm::launched_by_open_mpi() ? target_of(::fileno(stream)) : "/dev/tty";
  const bool shown = target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") || target == "/dev/console";
  const bool terminal = ::isatty(::fileno(stream)) == 1 && shown && !term.empty() && term != "dumb";
  return {.terminal = terminal, .colour = terminal && environment("NO_COLOR").empty()};
}

bool are_same_file(std::FILE* a, std::FILE* b) {
  const std::string target = target_of(::fileno(a));
  return !target.empty() && target == target_of(::fileno(b));
}

std::string duration_text(double seconds) {
  const std::int64_t whole = std::llround(std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e9) : 0.0);
  std::ostringstream text;
  text << std::setfill('0');
  if (whole >= 3600) text << whole / 3600 << ':' << std::setw(2);
  text << whole / 60 % 60 << ':' << std::setw(2) << whole % 60;
  return text.str();
}

std::string step_text(const StepRecord& r, std::int64_t steps, std::string_view unit) {
  std::ostringstream text;
  text << "step " << std::setw(static_cast<int>(std::to_string(steps).size())) << r.step << '/' << steps << "  loss "
       << decimal_text(r.loss, 4) << "  norm " << decimal_text(r.grad_norm, 3) << "  lr " << std::scientific
       << std::setprecision(2) << r.lr << "  " << grouped(r.tokens_per_second) << ' '
       << (unit == "tokens" ? std::string_view("tok") : unit) << "/s  peak " << short_bytes_text(r.peak_bytes);
  if (r.mfu) text << "  mfu " << decimal_text(*r.mfu * 100, 1) << "%";
  for (const GroupRecord& group : r.groups)
    if (group.grad_norm) text << "  norm of " << group.name << ' ' << decimal_text(*group.grad_norm, 3);
  return text.str();
}

std::string progress_text(const StepRecord& r, std::int64_t steps, double seconds_left) {
  const std::int64_t filled = steps > 0 ? std::clamp<std::int64_t>(r.step * bar_width / steps, 0, bar_width) : 0;
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < bar_width) bar += '>';
  bar.resize(static_cast<std::size_t>(bar_width), ' ');
  return message('[', bar, "] ", steps > 0 ? r.step * 100 / steps : 0, "%  step ", r.step, '/', steps, "  loss ",
                 decimal_text(r.loss, 4), "  ", duration_text(seconds_left), " left");
}

Console::Console(std::FILE* stream, ConsoleStyle style, std::int64_t first_step, std::int64_t steps,
                 std::int64_t log_every, std::string_view unit)
    : stream_(stream), style_(style), first_step_(first_step), steps_(steps), log_every_(log_every), unit_(unit) {}

Console::~Console() { finish(); }

/// Returns the text that erases the progress line.
std::string Console::erased() const { return progress_.empty() ? "" : "\r\033[K"; }

void Console::write(const std::string& text) {
  errno = 0;
  const bool written = std::fputs(text.c_str(), stream_) >= 0 && std::fflush(stream_) == 0;
  reader_is_gone_ = reader_is_gone_ || (!written && errno == EPIPE);
}

void Console::step(const StepRecord& record) {
  if (stream_ == nullptr) return;
  seconds_ += record.step_seconds;
  const double per_step = seconds_ / static_cast<double>(std::max<std::int64_t>(record.step - first_step_ + 1, 1));
  const double left = per_step * static_cast<double>(steps_ - record.step);
  const bool in_line = !style_.terminal && record.step < steps_;  // no progress line is displayed
  const bool due =
      log_every_ > 0 && (record.step % log_every_ == 0 || record.step == first_step_ || record.step == steps_);
  const std::string erase = erased();
  progress_.clear();
  const std::string end = in_line ? "  " + duration_text(left) + " left\n" : "\n";
  if (due || !erase.empty()) write(erase + (due ? step_text(record, steps_, unit_) + end : ""));
  if (record.step < steps_) progress(progress_text(record, steps_, left));
}

void Console::progress(const std::string& text) {
  if (stream_ == nullptr || !style_.terminal) return;
  const std::string erase = erased();
  progress_ = printable(text);
  write(erase + (style_.colour ? "\033[36m" + progress_ + "\033[0m" : progress_));
}

void Console::line(const std::string& text) {
  if (stream_ == nullptr) return;
  write(erased() + printable(text) + "\n" + progress_);
}

void Console::finish() {
  if (stream_ == nullptr || progress_.empty()) return;
  const std::string erase = erased();
  progress_.clear();
  write(erase);
}

}  // namespace fsdp::report
