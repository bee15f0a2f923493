#include "strategies/collective/flight.h"

#include <charconv>
#include <iomanip>
#include <sstream>

#include "core/base/error.h"
#include "core/base/format_number.h"

namespace cohort::flight_recorder {
namespace {

constexpr size_t kShown = 8;  // of the kept ones, besides those under way

std::string line_of(const Record& record, Clock::time_point now) {
  std::ostringstream out;
  out << "    " << (is_message(record) ? "message " : "collective ") << std::left << std::setw(8)
      << record.number << std::setw(14) << record.what << std::setw(10) << record.dtype
      << std::right << std::setw(12) << record.bytes << " bytes  ";
  if (record.state == State::kUnderWay)
    out << "WAITING for " << in_seconds(now - record.begin);
  else
    out << (record.state == State::kFailed ? "FAILED after " : "done in ")
        << in_seconds(record.end - record.begin) << ", " << in_seconds(now - record.end) << " ago";
  if (is_message(record))
    out << (record.what == "Send" ? "; to " : "; from ")
        << (record.peer < 0 ? "any rank" : str("rank ", record.peer));
  else if (record.peer >= 0)
    out << "; root " << record.peer;
  if (record.op) out << "; " << reduce_op_name(*record.op);
  if (record.shape) out << " of " << *record.shape;
  if (is_message(record) && record.tag >= 0) out << ", tag " << record.tag;
  out << '\n';
  return out.str();
}

}  // namespace

std::string in_seconds(Clock::duration time) {
  const double count = std::chrono::duration<double>(time).count();
  return format_number(count, std::chars_format::fixed, 3) + " s";
}

std::string Flight::text() const {
  const std::lock_guard lock(lock_);
  const auto now = Clock::now();
  const uint64_t first = first_kept();
  std::string text = str("has begun ", collectives_, " collectives and ", messages_, " messages; ",
                         count_under_way(), " under way\n");
  for (uint64_t i = first; i < begun_; ++i) {
    const Record& record = records_[i % records_.size()];
    if (record.state == State::kUnderWay || begun_ - i <= kShown) text += line_of(record, now);
  }
  return text;
}

}  // namespace cohort::flight_recorder
