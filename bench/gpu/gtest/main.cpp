// SPDX-License-Identifier: Apache-2.0
/// Runs the cases whose name begins as --gtest_filter=PREFIX* says; status 1 if one failed.
#include "gtest/gtest.h"

#include <exception>
#include <string_view>

int main(int argc, char** argv) {
  using namespace testing::bare;
  std::string_view prefix;
  constexpr std::string_view flag = "--gtest_filter=";
  for (int i = 1; i < argc; ++i)
    if (const std::string_view argument = argv[i]; argument.starts_with(flag)) prefix = argument.substr(flag.size());
  if (prefix.ends_with('*')) prefix.remove_suffix(1);
  int failed = 0;
  for (const Case& one : cases()) {
    if (!one.name.starts_with(prefix)) continue;
    const int before = failures;
    skipped.clear();
    try {
      one.body();
    } catch (const std::exception& error) {
      ++failures;
      std::cout << error.what() << "\n";
    }
    const bool ok = failures == before;
    failed += ok ? 0 : 1;
    std::cout << (!ok               ? "[  FAILED  ] "
                  : skipped.empty() ? "[       OK ] "
                                    : "[  SKIPPED ] ")
              << one.name << (skipped.empty() ? "" : ": " + skipped) << std::endl;
  }
  return failed > 0 ? 1 : 0;
}
