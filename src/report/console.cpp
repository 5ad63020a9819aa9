// SPDX-License-Identifier: Apache-2.0
#include <fsdp/report/console.hpp>

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <fsdp/core/environment.hpp>
#include <fsdp/report/report.hpp>

namespace fsdp::report {
namespace {

constexpr std::int64_t bar_width = 24;

/// 8123.4 as "8,123".
std::string grouped(double value) {
  return count_text(std::llround(std::isfinite(value) ? std::clamp(value, 0.0, 1e15) : 0.0));
}

std::string short_bytes_text(std::int64_t bytes) {
  std::ostringstream text;
  const double mib = static_cast<double>(bytes) / (1 << 20);
  text << std::fixed << std::setprecision(mib < 1024 ? 0 : 2) << (mib < 1024 ? mib : mib / 1024)
       << (mib < 1024 ? " MiB" : " GiB");
  return text.str();
}

/// Open MPI's mpirun gives its ranks a terminal of its own, so that the launcher's descriptor must be checked.
bool launcher_has_terminal(int descriptor) {
  if (environment("OMPI_COMM_WORLD_SIZE").empty()) return true;
  std::error_code error;
  const std::string link = "/proc/" + std::to_string(::getppid()) + "/fd/" + std::to_string(descriptor);
  const std::string target = std::filesystem::read_symlink(link, error).string();
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") || target == "/dev/console";
}

}  // namespace

ConsoleStyle style_of(std::FILE* stream) {
  const std::string_view term = environment("TERM");
  const bool dumb = term.empty() || term == "dumb";
  const bool terminal = ::isatty(::fileno(stream)) == 1 && launcher_has_terminal(::fileno(stream)) && !dumb;
  return {.terminal = terminal, .colour = terminal && environment("NO_COLOR").empty()};
}

std::string duration_text(double seconds) {
  const std::int64_t whole = std::llround(std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e9) : 0.0);
  std::ostringstream text;
  text << std::setfill('0');
  if (whole >= 3600) text << whole / 3600 << ':' << std::setw(2);
  text << whole / 60 % 60 << ':' << std::setw(2) << whole % 60;
  return text.str();
}

std::string step_text(const StepRecord& r, std::int64_t steps) {
  std::ostringstream text;
  text << "step " << std::setw(static_cast<int>(std::to_string(steps).size())) << r.step << '/' << steps << "  loss "
       << std::fixed << std::setprecision(4) << r.loss << "  norm " << std::setprecision(3) << r.grad_norm << "  lr "
       << std::scientific << std::setprecision(2) << r.lr << "  " << grouped(r.tokens_per_second) << " tok/s  peak "
       << short_bytes_text(r.peak_bytes);
  if (r.mfu) text << "  mfu " << std::fixed << std::setprecision(1) << *r.mfu * 100 << "%";
  return text.str();
}

std::string progress_text(const StepRecord& r, std::int64_t steps, double seconds_left) {
  const std::int64_t filled = steps > 0 ? std::clamp<std::int64_t>(r.step * bar_width / steps, 0, bar_width) : 0;
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < bar_width) bar += '>';
  bar.resize(static_cast<std::size_t>(bar_width), ' ');
  std::ostringstream text;
  text << '[' << bar << "] " << (steps > 0 ? r.step * 100 / steps : 0) << "%  step " << r.step << '/' << steps
       << "  loss " << std::fixed << std::setprecision(4) << r.loss << "  " << duration_text(seconds_left) << " left";
  return text.str();
}

Console::Console(std::FILE* stream, ConsoleStyle style, std::int64_t first_step, std::int64_t steps,
                 std::int64_t log_every)
    : stream_(stream), style_(style), first_step_(first_step), steps_(steps), log_every_(log_every) {}

Console::~Console() { finish(); }

void Console::erase() {
  if (!progress_.empty()) std::fputs("\r\033[K", stream_);
}

void Console::step(const StepRecord& record) {
  if (stream_ == nullptr) return;
  seconds_ += record.step_seconds;
  const double per_step = seconds_ / static_cast<double>(std::max<std::int64_t>(record.step - first_step_ + 1, 1));
  erase();
  const bool due =
      log_every_ > 0 && (record.step % log_every_ == 0 || record.step == first_step_ || record.step == steps_);
  if (due) std::fprintf(stream_, "%s\n", step_text(record, steps_).c_str());
  progress_.clear();
  if (style_.terminal && record.step < steps_) {
    progress(progress_text(record, steps_, per_step * static_cast<double>(steps_ - record.step)));
  }
  std::fflush(stream_);
}

void Console::progress(std::string text) {
  if (stream_ == nullptr || !style_.terminal) return;
  erase();
  progress_ = std::move(text);
  std::fputs(style_.colour ? ("\033[36m" + progress_ + "\033[0m").c_str() : progress_.c_str(), stream_);
  std::fflush(stream_);
}

void Console::line(const std::string& text) {
  if (stream_ == nullptr) return;
  erase();
  std::fprintf(stream_, "%s\n%s", text.c_str(), progress_.c_str());
  std::fflush(stream_);
}

void Console::finish() {
  if (stream_ == nullptr) return;
  erase();
  progress_.clear();
  std::fflush(stream_);
}

}  // namespace fsdp::report
