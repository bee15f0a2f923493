#pragma once

#include <map>
#include <string>

#include "core/tensor/tensor.h"

namespace cohort {

// The content of a safetensors file, the format in which Hugging Face keeps weights
// (https://huggingface.co/docs/safetensors): named tensors and a few strings about them.
struct Safetensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
  // Tensors of dtypes that there is no DType for, which nobody may want: what each is, in words of
  // the format ("F8_E4M3[2,3]").
  std::map<std::string, std::string> unsupported = {};
};

// Replaces or creates `path` atomically: a save that fails leaves the file of before. Beside the
// metadata, under "crc32c:NAME" and "crc32c", the file gets the CRC-32C of each tensor's bytes and
// of the metadata, in hexadecimal digits; other programs pass over them. kInvalidArgument for
// metadata of such names, for a tensor "__metadata__" or one that is not defined() or
// `unsupported`, and for text that is not UTF-8; else as core/base/file.h says.
void write_safetensors(const std::string& path, const Safetensors& content);

// kInvalidArgument, saying where, unless all names of tensors and all metadata are UTF-8, the only
// text of the format: for who has something to put aside before writing.
void require_utf8(const Safetensors& content);

// Reads a whole file. Every size in it is checked before memory is allocated by it; what does not
// fit the format is kDataLoss naming the file and the byte offset. So is, where the file has
// checks, a tensor that does not fit its own, or is `unsupported`, which write_safetensors() writes
// none of: a program that edits one has to drop them. A dtype that is not one of the format, or
// more axes than Shape has, is kUnimplemented.
Safetensors read_safetensors(const std::string& path);
// Its metadata alone, for which the bytes of tensors are not read; errors are those of the rest.
std::map<std::string, std::string> read_safetensors_metadata(const std::string& path);

}  // namespace cohort
