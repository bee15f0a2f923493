// Which of a file's tensors variables get, and what becomes of the others.
#include <string>
#include <vector>

#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::error_of;
using cohort::testing::make_folder;

TEST(Checkpoint, MissingAndUnexpectedNamesMayBeIgnored) {
  const std::string path = make_folder() + "/part.safetensors";
  write_safetensors(path, {.tensors = {{"dense_1/bias", Tensor::full(DType::kFloat32, {2}, 7)},
                                       {"extra", Tensor::zeros(DType::kFloat32, {1})}}});
  auto model = classifier();
  const Loaded loaded =
      model.load_weights(path, {.ignore_missing = true, .ignore_unexpected = true});
  EXPECT_EQ(model.variables().back()->value().data<float>()[1], 7);
  using Names = std::vector<std::string>;
  EXPECT_EQ(loaded.variables, (Names{"dense_1/bias"}));
  EXPECT_EQ(loaded.missing, (Names{"dense/kernel", "dense/bias", "dense_1/kernel"}));
  EXPECT_EQ(loaded.unexpected, (Names{"extra"}));
  EXPECT_EQ(loaded.other_shapes, Names());
}

TEST(Checkpoint, OfOtherNamesAltogetherIsRefusedWhateverMayBeIgnored) {
  const std::string path = make_folder() + "/other.safetensors";
  write_safetensors(path, {.tensors = {{"conv1.weight", Tensor::zeros(DType::kFloat32, {2})},
                                       {"fc.weight", Tensor::zeros(DType::kFloat32, {1})}}});
  auto model = classifier();
  const LoadOptions all{.ignore_missing = true, .ignore_unexpected = true};
  EXPECT_EQ(error_of([&] { model.load_weights(path, all); }),
            path +
                " has none of the variables, which are dense/kernel, dense/bias, dense_1/kernel, "
                "dense_1/bias; it has conv1.weight, fc.weight");
}

TEST(Checkpoint, OfAnotherLibraryIsConvertedAsItIsLoaded) {
  const std::string path = make_folder() + "/torch.safetensors";
  const Tensor head =
      Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, {2, 8});
  write_safetensors(path, {.tensors = {{"head.weight", head},
                                       {"head.bias", Tensor::full(DType::kFloat32, {2}, 7)},
                                       {"num_batches", Tensor::scalar(int64_t{3})}}});
  const auto convert = [](const Tensors& file) {
    Tensors weights;
    weights["dense_1/kernel"] = file.at("head.weight").transpose({1, 0});
    weights["dense_1/bias"] = file.at("head.bias");
    return weights;
  };
  auto model = classifier();
  const Loaded loaded = model.load_weights(path, {.ignore_missing = true, .convert = convert});
  EXPECT_EQ(loaded.variables, (std::vector<std::string>{"dense_1/kernel", "dense_1/bias"}));
  EXPECT_EQ(loaded.unexpected, std::vector<std::string>());
  EXPECT_EQ(to_string(model.variables()[2]->value()), to_string(head.transpose({1, 0})));
  EXPECT_EQ(model.variables()[3]->value().data<float>()[0], 7);

  const auto nothing = [](const Tensors&) { return Tensors{{"dense/bias", Tensor()}}; };
  EXPECT_EQ(
      error_of([&] { model.load_weights(path, {.ignore_missing = true, .convert = nothing}); }),
      "what is to be loaded as \"dense/bias\" has no value");
}

TEST(Checkpoint, FloatingValuesOfFewerBitsAreWidened) {
  const std::string path = make_folder() + "/half.safetensors";
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    auto model = classifier();
    write_safetensors(path, {.tensors = {{"dense_1/bias", Tensor::full(dtype, {2}, 0.5)}}});
    const Loaded loaded = model.load_weights(path, {.ignore_missing = true});
    EXPECT_EQ(loaded.variables, std::vector<std::string>{"dense_1/bias"});
    EXPECT_EQ(loaded.widened, loaded.variables);
    EXPECT_EQ(model.variables().back()->value().data<float>()[0], 0.5f);
  }
}

TEST(Checkpoint, VariablesOfAnotherShapeMayKeepTheirValues) {
  const std::string path = make_folder() + "/three_classes.safetensors";
  auto model = classifier();
  write_safetensors(path, {.tensors = {{"dense/kernel", Tensor::full(DType::kFloat32, {2, 8}, 7)},
                                       {"dense/bias", Tensor::full(DType::kFloat32, {8}, 7)},
                                       {"dense_1/kernel", Tensor::zeros(DType::kFloat32, {8, 3})},
                                       {"dense_1/bias", Tensor::zeros(DType::kFloat64, {2})}}});
  const std::string head = to_string(model.variables()[2]->value());
  EXPECT_EQ(error_of([&] { model.load_weights(path, {.ignore_other_shapes = true}); }),
            path +
                " does not fit the variables:\n"
                "  dense_1/bias is float32[2], in the file float64[2]");
  write_safetensors(path, {.tensors = {{"dense/kernel", Tensor::full(DType::kFloat32, {2, 8}, 7)},
                                       {"dense/bias", Tensor::full(DType::kFloat32, {8}, 7)},
                                       {"dense_1/kernel", Tensor::zeros(DType::kFloat32, {8, 3})},
                                       {"dense_1/bias", Tensor::full(DType::kFloat32, {2}, 7)}}});
  EXPECT_EQ(model.load_weights(path, {.ignore_other_shapes = true}).other_shapes,
            (std::vector<std::string>{"dense_1/kernel"}));
  EXPECT_EQ(to_string(model.variables()[2]->value()), head);
  for (const size_t loaded : {0, 1, 3})
    EXPECT_EQ(model.variables()[loaded]->value().data<float>()[0], 7) << loaded;
}

TEST(Checkpoint, TensorsOfDTypesThatAreNotSupportedMayOnlyBePassedOver) {
  const std::string path = make_folder() + "/quantised.safetensors";
  const auto write_with = [&](const std::string& quantised) {
    const std::string header =
        str(R"({"dense_1/bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},")", quantised,
            R"(":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[8,10]}})");
    const uint64_t length = header.size();
    const float bias[] = {7, 7};
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += header;
    bytes.append(reinterpret_cast<const char*>(bias), sizeof bias);
    write_file_atomically(path, bytes + "\1\2");
  };
  auto model = classifier();
  write_with("codes");
  EXPECT_EQ(error_of([&] { model.load_weights(path, {.ignore_missing = true}); }),
            path + " does not fit the variables:\n  unexpected: codes F8_E4M3[2]");
  const LoadOptions part{.ignore_missing = true, .ignore_unexpected = true};
  const Loaded loaded = model.load_weights(path, part);
  EXPECT_EQ(loaded.variables, std::vector<std::string>{"dense_1/bias"});
  EXPECT_EQ(loaded.unexpected, std::vector<std::string>{"codes"});
  EXPECT_EQ(model.variables().back()->value().data<float>()[1], 7);

  const auto bias = [](const Tensors& file) {
    return Tensors{{"dense_1/bias", file.at("dense_1/bias")}};
  };
  EXPECT_EQ(model.load_weights(path, {.ignore_missing = true, .convert = bias}).unexpected,
            std::vector<std::string>());
  const auto codes = [](const Tensors& file) { return Tensors{{"dense/bias", file.at("codes")}}; };
  EXPECT_EQ(error_of([&] { model.load_weights(path, {.convert = codes}); }),
            "what converts the file looks for a tensor that cannot be loaded; codes is F8_E4M3[2], "
            "whose dtype is not supported");

  write_with("dense/bias");
  EXPECT_EQ(error_of([&] { model.load_weights(path, part); }),
            path +
                " does not fit the variables:\n"
                "  dense/bias is float32[8], in the file F8_E4M3[2], whose dtype is not supported");
}

}  // namespace
}  // namespace cohort
