#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"

// Numbers and words that the leader and its members share.
namespace cohort::coordination {

// Of the messages in proto/coordination.proto; members of another version are refused.
inline constexpr uint32_t kProtocolVersion = 2;
// Begins what the leader says of another first message than it knows.
inline constexpr std::string_view kJoinExpected = "expected a Join first";
// The largest message: a value and its key, with room for what goes around them.
inline constexpr int kMaxMessageBytes = (1 << 20) + (16 << 10);
inline constexpr size_t kMaxBarrierNameBytes = 256;
inline constexpr size_t kMaxJobIdBytes = 64;
// The text of an error is cut here.
inline constexpr size_t kMaxErrorBytes = 256 << 10;
// Calls that one member may have waiting at the leader.
inline constexpr size_t kMaxWaitingCalls = 4096;

// "2 s", "2.5 s", "300 ms".
std::string in_words(std::chrono::milliseconds time);

// 16 digits.
std::string in_hex(uint64_t value);

// kDeadlineExceeded of KeyValueStore::get.
Error missing_key(std::string_view key, std::chrono::milliseconds timeout);

}  // namespace cohort::coordination
