// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes the SVG without a library, since it contains only lines, ticks and text. gnuplot, and the libraries that call
/// it, would be another program to install; PLplot and MathGL would be a dependency of every build for this one
/// command.
#include "plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/utf8.hpp"

namespace fsdp::report {
namespace {

constexpr std::array<const char*, 8> colours = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                                "#ff7f0e", "#17becf", "#8c564b", "#e377c2"};
constexpr double width = 960, left = 84, right = 884;    // width of the picture; sides of the panels
constexpr double loss_height = 360, lower_height = 200;  // heights of the panels
constexpr double title_row = 26;                         // height of the title above the legend
constexpr double row = 20, between = 44;                 // height of a legend's row; gap between panels
constexpr std::size_t most_points = 4000;                // points per curve: more than the picture has pixels
constexpr std::size_t longest_name = 100;                // bytes

const char* colour(std::size_t run) { return colours[run % colours.size()]; }

/// Maps the values [low, high] to coordinates of the picture.
struct Scale {
  double low, high, at_low, at_high;
  double operator()(double value) const { return at_low + (value - low) / (high - low) * (at_high - at_low); }
};

std::string printed(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}
std::string pixel(double value) { return printed("%.1f", std::clamp(value, -1e5, 1e5)); }

/// Prints a tick's value with just enough digits for ticks that are `step` apart: 0.25, 3e-4, 2000, 50k, 20M.
std::string tick_text(double value, double step) {
  if (std::abs(value) < step * 1e-6) return "0";
  for (const auto& [unit, letter] : {std::pair{1e9, "G"}, std::pair{1e6, "M"}, std::pair{1e3, "k"}})
    if (step >= 10 * unit) return tick_text(value / unit, 1) + letter;
  const double size = std::max(std::abs(value), step);
  if (size >= 1e-3)
    return printed(
        ("%." + std::to_string(std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)))) + "f").c_str(),
        value);
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  return printed("%g", std::round(value / std::pow(10.0, exponent) * 100) / 100) + "e" + std::to_string(exponent);
}

/// Escapes text for XML and removes control characters, which XML does not allow; keeps only the end of a long text.
std::string xml_text(const std::string& text) {
  std::string sound = shortened(text, text.size());
  if (sound.size() > longest_name) {
    std::size_t cut = sound.size() - longest_name;
    while (cut < sound.size() && continues_code_point(sound[cut])) ++cut;
    sound = "..." + sound.substr(cut);
  }
  std::string escaped;
  for (const char c : sound) escaped += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return escaped;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return message("<text x=\"", pixel(x), "\" y=\"", pixel(y), "\" text-anchor=\"", anchor, "\"", more, ">", text,
                 "</text>\n");
}
/// Draws a vertical label that reads upwards, at the x coordinate `x_text`.
std::string vertical_text_at(double x, const std::string& x_text, double y, const char* text) {
  return text_at(x, y, "middle", text, message(" transform=\"rotate(-90 ", x_text, " ", pixel(y), ")\"").c_str());
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return message("<line x1=\"", pixel(x1), "\" y1=\"", pixel(y1), "\" x2=\"", pixel(x2), "\" y2=\"", pixel(y2), "\" ",
                 style, "/>\n");
}

struct Point {
  double x, y;
};

/// Thins a long curve: keeps the first, lowest, highest and last point of each stretch, which look the same.
std::vector<Point> downsampled(const std::vector<Point>& points) {
  if (points.size() <= most_points) return points;
  std::vector<Point> kept;
  const std::size_t stretches = most_points / 4;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    const auto [lowest, highest] = std::minmax_element(begin, end, [](auto& a, auto& b) { return a.y < b.y; });
    std::array<std::vector<Point>::const_iterator, 4> chosen = {begin, lowest, highest, end - 1};
    std::sort(chosen.begin(), chosen.end());
    std::for_each(chosen.begin(), std::unique(chosen.begin(), chosen.end()), [&](auto it) { kept.push_back(*it); });
  }
  return kept;
}

/// Draws a curve with a gap at each value that is not finite.
template <class Value>
std::string curve(const PlottedRun& run, Value value, const Scale& x, const Scale& y, const char* colour,
                  const char* style) {
  std::string svg;
  std::vector<Point> points;
  const auto flush = [&] {
    if (points.size() == 1)
      svg += message("<circle cx=\"", pixel(points[0].x), "\" cy=\"", pixel(points[0].y), "\" r=\"1.5\" fill=\"",
                     colour, "\"/>\n");
    if (points.size() > 1) {
      svg += message("<polyline fill=\"none\" stroke=\"", colour, "\" ", style, " points=\"");
      for (const Point& point : downsampled(points)) svg += pixel(point.x) + "," + pixel(point.y) + " ";
      svg.back() = '"';
      svg += "/>\n";
    }
    points.clear();
  };
  for (const StepPoint& step : run.steps) {
    if (std::isfinite(value(step)))
      points.push_back({x(static_cast<double>(step.step)), y(value(step))});
    else
      flush();
  }
  flush();
  return svg;
}

template <class Value>
std::vector<double> all_values(const std::vector<PlottedRun>& runs, Value value) {
  std::vector<double> values;
  for (const PlottedRun& run : runs)
    for (const StepPoint& step : run.steps) values.push_back(value(step));
  return values;
}

/// Returns a note for a panel's corner on the number of values that are out of range or not finite.
std::string outside(const std::vector<double>& values, const Scale& y, double top) {
  const auto count =
      std::ranges::count_if(values, [&](double v) { return std::isfinite(v) && (v < y.low || v > y.high); });
  const auto none = std::ranges::count_if(values, [](double v) { return !std::isfinite(v); });
  std::string text = count == 0 ? "" : message(count, count == 1 ? " value lies" : " values lie", " outside");
  if (none != 0) text += message(text.empty() ? "" : ", ", none, none == 1 ? " is" : " are", " not finite");
  return text.empty() ? "" : text_at(right - 6, top + 16, "end", text, " fill=\"#777\" font-size=\"11\"");
}

/// Draws the rectangle of a panel between `y.at_high` and `y.at_low`.
std::string panel(const Scale& y, const char* style) {
  return message("<rect x=\"", pixel(left), "\" y=\"", pixel(y.at_high), "\" width=\"", pixel(right - left),
                 "\" height=\"", pixel(y.at_low - y.at_high), "\"", style, "/>");
}

/// Draws frame, ticks and grid of a panel between `y.at_high` and `y.at_low`.
std::string axes(const Scale& x, const Scale& y, const char* label) {
  std::string svg;
  const std::vector<double> steps = ticks(x.low, x.high, 8), values = ticks(y.low, y.high, 6);
  const auto gap = [](const std::vector<double>& all) { return all.size() > 1 ? all[1] - all[0] : 1.0; };
  for (const double at : values) {
    svg += line(left, y(at), right, y(at), "stroke=\"#e4e4e4\"");
    svg += text_at(left - 8, y(at) + 4, "end", tick_text(at, gap(values)));
  }
  for (const double at : steps) {
    if (at != std::round(at)) continue;
    svg += line(x(at), y.at_low, x(at), y.at_high, "stroke=\"#f0f0f0\"");
    svg += text_at(x(at), y.at_low + 17, "middle", tick_text(at, std::max(gap(steps), 1.0)));
  }
  svg += panel(y, " fill=\"none\" stroke=\"#888\"") + "\n";
  return svg + vertical_text_at(14, "14", (y.at_low + y.at_high) / 2, label);
}

std::string clip(const char* name, const Scale& y) {
  return message("<clipPath id=\"", name, "\">", panel(y, ""), "</clipPath>\n");
}

std::string legend(const std::vector<PlottedRun>& runs) {
  std::string svg;
  for (const auto& [i, run] : ranges::views::enumerate(runs)) {
    const double y = title_row + 16 + row * static_cast<double>(i);
    svg += line(left, y, left + 24, y, message("stroke=\"", colour(i), "\" stroke-width=\"2.5\"").c_str());
    svg += text_at(left + 32, y + 4, "start", xml_text(run.name));
  }
  return svg;
}

std::string loss_panel(const std::vector<PlottedRun>& runs, const Scale& x, double top) {
  const auto loss = [](const StepPoint& step) { return step.loss; };
  std::vector<double> values = all_values(runs, loss);
  for (const PlottedRun& run : runs)
    for (const HeldOutPoint& point : run.held_out) values.push_back(point.loss);
  const auto [low, high] = shown_range(values);
  const Scale y{low, high, top + loss_height, top};
  std::string svg = clip("upper", y) + axes(x, y, "loss (points: held out)") + "<g clip-path=\"url(#upper)\">\n";
  for (const auto& [i, run] : ranges::views::enumerate(runs))
    svg += curve(run, loss, x, y, colour(i), "stroke-width=\"1.5\" stroke-linejoin=\"round\"");
  for (const auto& [i, run] : ranges::views::enumerate(runs))
    for (const HeldOutPoint& point : run.held_out)
      if (std::isfinite(point.loss))
        svg += message("<circle class=\"held-out\" cx=\"", pixel(x(static_cast<double>(point.step))), "\" cy=\"",
                       pixel(y(point.loss)), "\" r=\"4\" fill=\"", colour(i),
                       "\" stroke=\"white\" stroke-width=\"1.2\"/>\n");
  return svg + "</g>\n" + outside(values, y, top);
}

std::string lower_panel(const std::vector<PlottedRun>& runs, const Scale& x, double top) {
  const auto norm = [](const StepPoint& step) { return step.grad_norm; };
  const auto rate = [](const StepPoint& step) { return step.lr; };
  const std::vector<double> norms = all_values(runs, norm);
  const auto [low, high] = shown_range(norms);
  double highest = 0;
  for (const double lr : all_values(runs, rate))
    if (std::isfinite(lr)) highest = std::max(highest, lr);
  const Scale y{low, high, top + lower_height, top};
  const Scale lr{0, highest > 0 ? highest * 1.05 : 1, top + lower_height, top};
  std::string svg = clip("lower", y) + axes(x, y, "gradient norm");
  const std::vector<double> rates = ticks(lr.low, lr.high, 5);
  for (const double at : rates) {
    svg += line(right, lr(at), right + 5, lr(at), "stroke=\"#888\"");
    svg += text_at(right + 9, lr(at) + 4, "start", tick_text(at, rates.size() > 1 ? rates[1] - rates[0] : 1));
  }
  svg += vertical_text_at(width - 12, pixel(width - 12), top + lower_height / 2, "learning rate (dashed)");
  svg += text_at((left + right) / 2, top + lower_height + 36, "middle", "step") + "<g clip-path=\"url(#lower)\">\n";
  for (const auto& [i, run] : ranges::views::enumerate(runs))
    svg += curve(run, norm, x, y, colour(i), "stroke-width=\"1\" stroke-opacity=\"0.75\" stroke-linejoin=\"round\"");
  for (const auto& [i, run] : ranges::views::enumerate(runs))
    svg += curve(run, rate, x, lr, colour(i), "stroke-width=\"1.5\" stroke-dasharray=\"6 4\"");
  return svg + "</g>\n" + outside(norms, y, top);
}

}  // namespace

std::vector<double> ticks(double low, double high, int wanted) {
  const double rough = (high - low) / wanted, power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double times : {5.0, 2.0, 1.0})
    if (times * power >= rough * 0.999) step = times * power;
  std::vector<double> found;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double i = first; i <= last && found.size() < 100; ++i) found.push_back(i * step);
  return found;
}

std::pair<double, double> shown_range(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return {0, 1};
  std::ranges::sort(values);
  const std::size_t trimmed = values.size() < 8 ? 0 : std::max<std::size_t>(values.size() / 50, 1);
  const double inner_low = values[trimmed], inner_high = values[values.size() - 1 - trimmed];
  const double reach = 1.5 * (inner_high - inner_low);
  // The outermost values within reach, so that excluded outliers cause no empty space.
  double low = *std::ranges::lower_bound(values, inner_low - reach);
  double high = *(std::ranges::upper_bound(values, inner_high + reach) - 1);
  const bool flat = high - low <= 1e-9 * std::abs(high);
  const double margin = !flat ? 0.04 * (high - low) : high != 0 ? 0.05 * std::abs(high) : 1;
  low -= margin, high += margin;
  return {low, high};
}

std::string svg_of(const std::vector<PlottedRun>& runs) {
  double first = std::numeric_limits<double>::max(), last = 0;
  for (const PlottedRun& run : runs) {
    first = std::min(first, static_cast<double>(run.steps.front().step));
    last = std::max(last, static_cast<double>(run.steps.back().step));
  }
  if (first == last) first -= 1, last += 1;
  const double margin = (last - first) * 0.01;
  const Scale x{first - margin, last + margin, left, right};
  const char* const title = "Loss, gradient norm and learning rate by step";
  const double top = title_row + 16 + row * static_cast<double>(runs.size()), lower = top + loss_height + between;
  const std::string height = pixel(lower + lower_height + 50);
  return message("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", pixel(width), "\" height=\"", height,
                 "\" viewBox=\"0 0 ", pixel(width), " ", height,
                 "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#333\">\n", "<title>", title,
                 "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                 text_at(left, 22, "start", title, " font-size=\"15\""), legend(runs), loss_panel(runs, x, top),
                 lower_panel(runs, x, lower), "</svg>\n");
}

}  // namespace fsdp::report
