// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/optimizer_choice.hpp>

#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

using optim::AdamW;
using optim::Muon;
using optim::RunTimeOptimizer;
using optim::Sgd;

TEST(OptimizerChoice, IsTheProgramsOwnUnlessAnotherIsNamed) {
  EXPECT_EQ(resolve({}), RunTimeOptimizer());
  EXPECT_EQ(resolve({.name = "sgd"}), RunTimeOptimizer{Sgd{}});
  const RunTimeOptimizer start{Sgd{.momentum = 0.5, .nesterov = true}};
  EXPECT_EQ(resolve({.start = start}), start);
  EXPECT_EQ(resolve({.name = "sgd", .start = start}), start);
  EXPECT_EQ(resolve({.name = "adamw", .start = start}), RunTimeOptimizer());
}

TEST(OptimizerChoice, GivesEveryConstantToTheOneThatHasIt) {
  EXPECT_EQ(resolve({.constants = {{"beta1", "0.8"}, {"beta2", "0.99"}, {"eps", "1e-12"}, {"weight-decay", "0.05"}}}),
            (RunTimeOptimizer{AdamW{.beta1 = 0.8, .beta2 = 0.99, .eps = 1e-12, .weight_decay = 0.05}}));
  EXPECT_EQ(resolve({.name = "sgd", .constants = {{"momentum", "0.8"}, {"nesterov", "true"}}}),
            (RunTimeOptimizer{Sgd{.momentum = 0.8, .nesterov = true}}));
  EXPECT_EQ(resolve({.name = "muon", .constants = {{"iterations", "3"}, {"weight-decay", "0"}}}),
            (RunTimeOptimizer{Muon{.iterations = 3, .adamw = {.weight_decay = 0}}}));
}

TEST(OptimizerChoice, RefusesByNameWhatAnOptimizerDoesNotHave) {
  EXPECT_INPUT_ERROR(resolve({.constants = {{"nesterov", "true"}}}),
                     "--nesterov is not adamw's; it takes --beta1, --beta2, --eps, --weight-decay");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"beta1", "0.8"}}}),
                     "--beta1 is not sgd's; it takes --momentum, --nesterov, --weight-decay");
  EXPECT_INPUT_ERROR(resolve({.name = "adam"}), "--optimizer adam is not known; did you mean 'adamw'?");
}

TEST(OptimizerChoice, EveryBadConstantHasItsSentence) {
  EXPECT_INPUT_ERROR(resolve({.constants = {{"beta2", "1"}}}), "--beta2 1 must be at least 0 and below 1");
  EXPECT_INPUT_ERROR(resolve({.constants = {{"beta2", "0.99999999"}}}),
                     "--beta2 0.99999999 must be at least 0 and below 1 as a float");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"momentum", "0.99999999"}}}), "--momentum 0.99999999 must");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"weight-decay", "1e39"}}}), "--weight-decay 1e+39 must");
  EXPECT_INPUT_ERROR(resolve({.constants = {{"eps", "0"}}}), "--eps 0 must be above 0");
  EXPECT_INPUT_ERROR(resolve({.constants = {{"weight-decay", "-1"}}}), "--weight-decay -1 must be at least 0");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"momentum", "1"}}}), "--momentum 1 must be");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"momentum", "0"}, {"nesterov", "true"}}}),
                     "--nesterov looks ahead along the momentum, and --momentum is 0");
  EXPECT_INPUT_ERROR(resolve({.name = "muon", .constants = {{"iterations", "0"}}}), "--iterations 0 must be 1 to 100");
}

TEST(OptimizerFlags, AreTheConstantsOfAllKindsWithTheirDefaults) {
  OptimizerChoice choice;
  FlagSet flags;
  bind(flags, choice);
  EXPECT_EQ(flags.names(), (std::vector<std::string>{"optimizer", "beta1", "beta2", "eps", "weight-decay", "momentum",
                                                     "nesterov", "iterations"}));
  EXPECT_EQ(flags.find("optimizer")->get(), std::vector<std::string>{"adamw"});
  EXPECT_EQ(flags.find("beta1")->help, "adamw (0.9), muon (0.9): decay of the mean of gradients");
  const std::string& help = flags.find("weight-decay")->help;
  for (const char* part : {"adamw (0.1), muon (0.1): ", "; sgd (0): "})
    EXPECT_NE(help.find(part), std::string::npos) << help;
  EXPECT_TRUE(flags.find("beta1")->get().empty());
  flags.find("beta1")->set({"0.50"});
  EXPECT_EQ(choice.constants, (GivenValues{{"beta1", "0.5"}}));
  EXPECT_INPUT_ERROR(flags.find("iterations")->set({"many"}), "--iterations 'many' is not a whole number");
}

TEST(OptimizerFlags, OfAFixedOptimizerAreItsConstantsAlone) {
  ChosenOptimizer<Sgd> chosen{Sgd{.momentum = 0.7}};
  FlagSet flags;
  chosen.bind(flags);
  EXPECT_EQ(flags.names(), (std::vector<std::string>{"momentum", "nesterov", "weight-decay"}));
  EXPECT_EQ(flags.find("momentum")->get(), std::vector<std::string>{"0.7"});
  EXPECT_EQ(flags.refusal("optimizer"), "--optimizer is fixed by this program: sgd");
  EXPECT_EQ(flags.refusal("momentum"), "");
  flags.find("nesterov")->set({"true"});
  EXPECT_EQ(chosen.resolve(), (Sgd{.momentum = 0.7, .nesterov = true}));
  flags.find("momentum")->set({"2"});
  EXPECT_INPUT_ERROR(chosen.resolve(), "--momentum 2 must be at least 0 and below 1");
}

TEST(OptimizerLines, NameItAndAllConstants) {
  EXPECT_EQ(optimizer_lines(RunTimeOptimizer{Sgd{}}),
            "optimizer = \"sgd\"\nmomentum = 0.9\nnesterov = false\nweight-decay = 0\n");
}

}  // namespace
}  // namespace fsdp::train
