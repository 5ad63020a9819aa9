// SPDX-License-Identifier: Apache-2.0
#include "../json_part.hpp"

namespace fsdp::text {

Normalizer read_normalizer(const JsonPart& part) {
  std::vector<Normalizer::Step> steps;
  for (const JsonPart& step : part.steps("normalizers")) {
    const std::string type = step.type();
    if (type == "NFC") {
      steps.emplace_back(UnicodeForm::nfc);
    } else if (type == "NFD") {
      steps.emplace_back(UnicodeForm::nfd);
    } else if (type == "NFKC") {
      steps.emplace_back(UnicodeForm::nfkc);
    } else if (type == "NFKD") {
      steps.emplace_back(UnicodeForm::nfkd);
    } else if (type == "Prepend") {
      steps.emplace_back(Prepend{step.text("prepend")});
    } else if (type == "Replace") {
      steps.emplace_back(read_replace(step));
    } else {
      step.refuse("\"", type, "\" is not supported; there are NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence");
    }
  }
  return Normalizer(std::move(steps));
}

}  // namespace fsdp::text
