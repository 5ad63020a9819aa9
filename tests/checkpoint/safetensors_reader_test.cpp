// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include <tessera/fsdp/checkpoint/safetensors.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::content_of;
using test::golden;
using test::TemporaryFolder;

/// The content of a file with this header, unmodified, and `bytes` bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\1');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& range) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + range + "}";
}

class Reader : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& content) { return SafetensorsFile(folder_.write("x.safetensors", content)); }
  TemporaryFolder folder_;
};

TEST_F(Reader, ReadsRangesOfAGoldenFile) {
  const SafetensorsFile model(golden("llama-gqa") / "model.safetensors");
  const SafetensorsFile expected(golden("llama-gqa") / "expected.safetensors");
  const TensorInfo& embedding = model.at("model.embed_tokens.weight");
  EXPECT_EQ(model.tensors().size(), 21u);
  EXPECT_EQ(embedding.shape, (std::vector<std::int64_t>{256, 32}));
  EXPECT_EQ(embedding.dtype, "F32");

  std::vector<float> all(256 * 32), part(100);
  model.read_range(embedding, 0, 256 * 32, all.data());
  model.read_range(embedding, 77, 100, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 77));
  model.read_range(embedding, 256 * 32, 0, part.data());

  double loss = 0;
  expected.read_range(expected.at("loss"), 0, 1, &loss);
  EXPECT_NEAR(loss, std::log(256), 1);
}

TEST_F(Reader, RefusesFloat64ValuesThatOverflowFloat32) {
  const double numbers[] = {1, -1e39, std::numeric_limits<double>::infinity()};
  std::string content = file_of("{" + tensor("w", "F64", "[3]", "[0,24]") + "}", 0);
  content.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  const SafetensorsFile file = open(content);
  float value = 0;
  file.read_range(file.at("w"), 2, 1, &value);
  EXPECT_EQ(value, std::numeric_limits<float>::infinity());
  EXPECT_INPUT_ERROR(file.read_range(file.at("w"), 1, 1, &value), "tensor \"w\" holds -1e+39, too large for f32");
  double whole = 0;
  file.read_range(file.at("w"), 1, 1, &whole);
  EXPECT_EQ(whole, -1e39);
}

TEST_F(Reader, ConvertsEveryFloatingPointType) {
  std::string content =
      file_of("{" + tensor("a", "F16", "[5]", "[0,10]") + "," + tensor("b", "BF16", "[2]", "[10,14]") + "," +
                  tensor("c", "F64", "[1]", "[14,22]") + "," + tensor("d", "I32", "[1]", "[22,26]") + "}",
              0);
  const std::uint16_t halves[] = {0x3c00, 0xc000, 0x7c00, 0x0001, 0x8000, 0x3f80, 0xc049};
  const double number = 0.1;
  content.append(reinterpret_cast<const char*>(halves), sizeof halves);
  content.append(reinterpret_cast<const char*>(&number), sizeof number);
  content.append(4, '\0');
  const SafetensorsFile file = open(content);

  float values[5];
  file.read_range(file.at("a"), 0, 5, values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(values[2], INFINITY);
  EXPECT_EQ(values[3], 0x1p-24f);
  EXPECT_EQ(values[4], 0.0f);
  EXPECT_TRUE(std::signbit(values[4]));
  file.read_range(file.at("b"), 0, 2, values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -3.140625f);
  file.read_range(file.at("c"), 0, 1, values);
  EXPECT_EQ(values[0], 0.1f);
  EXPECT_INPUT_ERROR(file.read_range(file.at("d"), 0, 1, values), "tensor \"d\" is I32");
  EXPECT_INPUT_ERROR(file.at("e"), "has no tensor \"e\"");
  EXPECT_THROW(file.read_range(file.at("a"), 3, 3, values), LogicError);
  EXPECT_THROW(file.read_range(file.at("a"), -1, 1, values), LogicError);
}

TEST_F(Reader, AcceptsScalarsEmptyTensorsPaddingAndMetadata) {
  const SafetensorsFile file =
      open(file_of(R"({"__metadata__":{"format":"pt"},)" + tensor("s", "F32", "[]", "[0,4]") + "," +
                       tensor("none", "F32", "[3,0]", "[4,4]") + "," + tensor("u", "U8", "[3]", "[4,7]") + "}   ",
                   7));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.at("s").elements, 1);
  EXPECT_EQ(file.at("none").bytes, 0);
  EXPECT_TRUE(open(file_of("{}", 0)).tensors().empty());
}

TEST_F(Reader, RefusesInconsistentHeaders) {
  const auto expect = [&](const std::string& tensors, std::size_t bytes, const char* text) {
    const std::string sentence = test::input_error_of([&] { open(file_of("{" + tensors + "}", bytes)); });
    test::expect_parts(sentence, {text, "x.safetensors"});
  };
  expect(tensor("a", "F32", "[2]", "[0,4]"), 4, "tensor \"a\": data_offsets [0, 4] do not hold F32 [2]");
  expect(tensor("a", "F32", "[1]", "[4,0]"), 4, "do not hold");
  expect(tensor("a", "F32", "[1]", "[4,8]"), 8, "neither overlap nor leave holes");
  expect(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[0,4]"), 4, "neither overlap");
  expect(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[8,12]"), 12, "tensor \"b\" begins");
  expect(tensor("a", "F32", "[1]", "[0,4]"), 3, "cut short");
  expect(tensor("a", "F32", "[1]", "[0,4]"), 5, "take 4 bytes and it holds 5");
  expect(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("a", "F32", "[1]", "[4,8]"), 8, "\"a\" stands twice");
  expect(R"("a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4, "\"dtype\" stands twice");
  expect(tensor("a", "F4", "[2]", "[0,1]"), 1, "unknown dtype \"F4\"");
  expect(tensor("a", "F32", "[4294967296,4294967296]", "[0,0]"), 0, "overflow");
  expect(tensor("a", "F32", "[2305843009213693952,2]", "[0,0]"), 0, "overflow");
  expect(tensor("a", "F32", "[-1]", "[0,4]"), 4, "whole number");
  expect(tensor("a", "F32", "[1.0]", "[0,4]"), 4, "whole number");
  expect(tensor("a", "F32", "[-0]", "[0,0]"), 0, "whole number");
  expect(tensor("a", "F32", "[1]", "[0,4,4]"), 4, "two numbers");
  expect(tensor("a", "F32", "[1]", "[0,18446744073709551615]"), 4, "whole number");
  expect(tensor("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "array of more than 8");
  expect(tensor("a", "F32", "[[[[[1]]]]]", "[0,4]"), 4, "nested deeper");
  expect(tensor("", "F32", "[1]", "[0,4]"), 4, "name must have");
  expect(tensor("a\\u0000b", "F32", "[1]", "[0,4]"), 4, "no control characters");
  expect(R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", 4, "exactly dtype, shape");
  expect(R"("a":7)", 0, "exactly dtype, shape");
  expect(R"("__metadata__":{"a":1})", 0, "strings to strings");
  expect("\"\xff\":1", 0, "not valid JSON");
}

TEST_F(Reader, RefusesFilesThatAreNotSafetensors) {
  EXPECT_INPUT_ERROR(open(""), "too few");
  EXPECT_INPUT_ERROR(open("#!/bin/sh\necho hello world\n"), "Is this a safetensors file?");
  EXPECT_INPUT_ERROR(open(file_of(" {}", 0)), "does not begin with '{'");
  EXPECT_INPUT_ERROR(open(file_of("[]", 0)), "does not begin with '{'");
  EXPECT_INPUT_ERROR(open(std::string(16, '\xff')), "at most 25000000");
  EXPECT_INPUT_ERROR(open(std::string("\x40\0\0\0\0\0\0\0{}", 10)), "goes beyond its 10 bytes");
  EXPECT_INPUT_ERROR(open("<HTML><body>Sign in</body></HTML>"), "is a page of HTML, such as servers send in place");
  EXPECT_INPUT_ERROR(open("PK\3\4 and other bytes"),
                     "is a zip archive, as numpy.savez and torch.save write too, and no");
  EXPECT_INPUT_ERROR(open("GGUF and other bytes"),
                     "is weights in GGUF, and no safetensors file; download the file again");
  EXPECT_INPUT_ERROR(SafetensorsFile(folder_.path() / "absent"), "absent: cannot be opened: No such file");
  EXPECT_INPUT_ERROR(SafetensorsFile(folder_.path()), "not a regular file");
}

TEST_F(Reader, EveryTruncationIsAnInputError) {
  const std::string whole = content_of(golden("llama-odd") / "model.safetensors");
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 200 ? 1 : 997)
    EXPECT_THROW(open(whole.substr(0, bytes)), InputError) << bytes;
  EXPECT_THROW(open(whole.substr(0, whole.size() - 1)), InputError);
  EXPECT_THROW(open(whole + 'x'), InputError);
}

TEST_F(Reader, AFlippedHeaderBitIsAnErrorOrChangesATensorName) {
  const std::string whole = content_of(golden("llama-odd") / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data(), 8);
  std::mt19937 random(1);
  int refused = 0;
  const int tries = 1500;
  for (int i = 0; i < tries; ++i) {
    std::string broken = whole;
    broken[random() % (8 + header_bytes)] ^= static_cast<char>(1 << random() % 8);
    try {
      const SafetensorsFile file = open(broken);
      std::vector<float> values;
      for (const TensorInfo& info : file.tensors()) {
        values.resize(static_cast<std::size_t>(info.elements));
        if (info.dtype[0] == 'F') file.read_range(info, 0, info.elements, values.data());
      }
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, tries / 3);
}

}  // namespace
}  // namespace fsdp::checkpoint
