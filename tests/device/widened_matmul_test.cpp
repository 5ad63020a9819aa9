// SPDX-License-Identifier: Apache-2.0
#include "src/fsdp/device/compute/cpu/widened_matmul.hpp"

#include <numeric>
#include <utility>
#include <vector>

#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

struct Form {
  std::int64_t m, n, k;
  bool ta, tb, accumulate;
};

/// The values of a matrix in row-major order, transposed if requested. A loop over views would take a minute with
/// AddressSanitizer.
std::vector<double> widened(const Matrix<bf16>& matrix, bool transposed) {
  const auto view = matrix.view();
  std::vector<double> values;
  for (std::int64_t i = 0; i < (transposed ? view.columns() : view.rows()); ++i)
    for (std::int64_t j = 0; j < (transposed ? view.rows() : view.columns()); ++j)
      values.push_back(static_cast<double>(static_cast<float>(transposed ? view.row(j)[i] : view.row(i)[j])));
  return values;
}

/// The operands of a product and its float64 reference, summed in order and shared by all variants of the matmul.
struct Product {
  Form form;
  Matrix<bf16> a, b;
  std::vector<double> sums;  // [m, n]

  explicit Product(const Form& of)
      : form(of),
        a(Matrix<bf16>::random(1, form.ta ? form.k : form.m, form.ta ? form.m : form.k, 5)),
        b(Matrix<bf16>::random(2, form.tb ? form.n : form.k, form.tb ? form.k : form.n, 11)) {
    const std::vector<double> left = widened(a, form.ta), right = widened(b, !form.tb);  // [m, k], [n, k]
    for (std::int64_t i = 0; i < form.m; ++i)
      for (std::int64_t j = 0; j < form.n; ++j)
        sums.push_back(std::inner_product(left.data() + i * form.k, left.data() + (i + 1) * form.k,
                                          right.data() + j * form.k, 0.0));
  }
};

/// Compares a matmul of operands that are widened to float with float64.
template <class C>
void expect_as_float64(const Product& product, int threads, bool single_thread) {
  const Form& form = product.form;
  Rank rank(threads, 16 << 20);
  auto c = Matrix<C>::random(3, form.m, form.n, 7);
  std::vector<double> expected = product.sums;  // [m, n]
  if (form.accumulate) expected = plus(std::move(expected), c.values());
  const cpu::MatmulKey key{.a = DType::bf16,
                           .c = dtype_of<C>(),
                           .m = form.m,
                           .n = form.n,
                           .k = form.k,
                           .lda = product.a.view().row_stride(),
                           .ldb = product.b.view().row_stride(),
                           .ldc = c.view().row_stride(),
                           .a_transposed = form.ta,
                           .b_transposed = form.tb,
                           .accumulate = form.accumulate,
                           .single_thread = single_thread};
  const cpu::WidenedMatmul matmul = cpu::make_widened(cpu::cache_of(rank.stream), key);
  EXPECT_EQ(matmul.scratch_bytes(), cpu::plan_widened(cpu::cache_of(rank.stream), key).scratch_bytes());
  const Block<Cpu> scratch(rank.ledger, MemoryKind::scratch, matmul.scratch_bytes());
  cpu::run(matmul, product.a.view().data(), product.b.view().data(), c.view().data(), scratch.data());
  EXPECT_LT(difference(c.values(), expected), tolerance<C>())
      << form.m << " " << form.n << " " << form.k << (form.ta ? " a" : "") << (form.tb ? " b" : "");
  EXPECT_TRUE(c.gaps_untouched());
}

TEST(WidenedMatmul, MatchesFloat64ForAllTransposesAndManyBlocks) {
  for (const Form& form : {Form{530, 270, 300, false, false, false},
                           {530, 270, 300, true, false, true},
                           {1100, 33, 257, false, true, true},
                           {17, 600, 520, true, true, false},
                           {1, 1, 1, false, false, true},
                           {513, 257, 256, false, true, false}}) {
    const Product product(form);
    for (const int threads : {1, 2, 3}) {
      expect_as_float64<bf16>(product, threads, false);
      expect_as_float64<float>(product, threads, false);
      expect_as_float64<float>(product, threads, true);
    }
  }
}

TEST(WidenedMatmul, IsUsedOnProcessorsWithFasterFloatMatmuls) {
  using cpu::float_is_faster;
  using cpu::Isa;
  constexpr auto with = Isa::avx512_bf16;
  EXPECT_TRUE(float_is_faster({.isa = Isa::baseline}));
  EXPECT_TRUE(float_is_faster({.isa = Isa::avx512, .library_bf16 = true, .intel = true})) << "TESSERA_ISA=avx512";
  EXPECT_TRUE(float_is_faster({.isa = with})) << "DNNL_MAX_CPU_ISA";
  EXPECT_FALSE(float_is_faster({.isa = with, .library_bf16 = true})) << "Zen 4";
  EXPECT_TRUE(float_is_faster({.isa = with, .library_bf16 = true, .intel = true})) << "a Xeon whose AMX is hidden";
  EXPECT_FALSE(float_is_faster({.isa = with, .library_bf16 = true, .library_amx = true, .intel = true})) << "AMX";
}

}  // namespace
}  // namespace fsdp::device
