// SPDX-License-Identifier: Apache-2.0
#include "merged.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::checkpoint {

void MergedWeights::open(const NamedShape& tensor) {
  constexpr std::string_view suffix = ".weight";
  name_ = tensor.name;
  rank_ = 0;
  const std::string module = name_.substr(0, name_.size() - std::min(name_.size(), suffix.size()));
  const std::string a_name = module + ".lora_A.weight", b_name = module + ".lora_B.weight";
  const auto& parameters = model_->listing.parameters;
  if (std::ranges::find(parameters, a_name, &NamedShape::name) == parameters.end()) return;
  rank_ = model_->listing.lora->rank;
  const auto read = [&](const std::string& name, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    model_->read_finite(name, 0, count, values.data());
    return values;
  };
  a_ = read(a_name, rank_ * tensor.shape[1]);
  b_ = read(b_name, rank_ * tensor.shape[0]);
}

void MergedWeights::measure(const float* base, const float* product, const float* merged, std::int64_t values) {
  const auto rounded = [&](float value) {
    return dtype_ == DType::bf16  ? static_cast<float>(bf16(value))
           : dtype_ == DType::f16 ? static_cast<float>(f16(value))
                                  : value;
  };
  for (std::int64_t i = 0; i < values; ++i) {
    const float before = rounded(base[i]), after = rounded(merged[i]);
    const double wanted = product[i], lacks = wanted - (static_cast<double>(after) - static_cast<double>(before));
    effect_.changed += after != before ? 1 : 0;
    effect_.wanted += wanted * wanted;
    effect_.lost += lacks * lacks;
  }
  effect_.weights += values;
}

double MergeEffect::lost_share() const { return wanted > 0 ? std::min(std::sqrt(lost / wanted), 1.0) : 0; }

void MergedWeights::read_finite(const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out) {
  model_->read_finite(tensor.name, begin, count, out);
  if (tensor.name != name_) open(tensor);
  if (rank_ == 0) return;
  const std::int64_t columns = tensor.shape[1];
  const auto scale = static_cast<float>(model_->listing.lora->scale());
  for (std::int64_t at = begin; at < begin + count;) {
    const std::int64_t row = at / columns, first = at % columns;
    const std::int64_t length = std::min(columns - first, begin + count - at);
    float* const values = out + (at - begin);
    base_.assign(values, values + length);
    product_.assign(static_cast<std::size_t>(length), 0.0F);
    for (std::int64_t k = 0; k < rank_; ++k) {
      const float factor = scale * b_[static_cast<std::size_t>(row * rank_ + k)];
      const float* const a = a_.data() + k * columns + first;
      for (std::int64_t column = 0; column < length; ++column) values[column] += factor * a[column];
      for (std::int64_t column = 0; column < length; ++column)
        product_[static_cast<std::size_t>(column)] += factor * a[column];
    }
    measure(base_.data(), product_.data(), values, length);
    at += length;
  }
  const std::int64_t bad = first_not_finite({out, static_cast<std::size_t>(count)});
  require<InputError>(bad < 0, model_->weights.path().string(), ": ", tensor.name, "[", begin + bad,
                      "] with the product of the adapters of ", adapter_, ", all of which are finite, is ",
                      bad < 0 ? 0.0F : out[bad], "; no run can use it. Take the adapters from elsewhere");
}

}  // namespace fsdp::checkpoint
