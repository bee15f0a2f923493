#include "strategies/collective/mpi/traffic.h"

#include <algorithm>
#include <set>

namespace cohort::mpi {

std::vector<Control> Traffic::join(std::vector<Control> statements) {
  {
    const auto lock = group_.transport().lock();
    if (group_.is_over(number_)) throw group_.error();
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + i) % size();
      Control& statement = statements[static_cast<size_t>(r)];
      statement.words[3] = static_cast<uint64_t>(group_.tag());
      said_.push_back(group_.send(r, std::move(statement)));
    }
  }
  std::vector<int> missing;
  std::vector<Control> heard(static_cast<size_t>(size()));
  wait_until(
      [&] {
        if (group_.is_over(number_)) throw group_.error();
        missing.clear();
        for (int r = 0; r < size(); ++r)
          if (r != rank() && group_.calls(r).empty()) missing.push_back(r);
        if (!missing.empty()) return false;
        for (int r = 0; r < size(); ++r) {
          if (r == rank()) continue;
          heard[static_cast<size_t>(r)] = std::move(group_.calls(r).front());
          group_.calls(r).pop_front();
        }
        group_.commit(number_);
        return true;
      },
      missing, "waits for ", " to make the call");
  for (const Control& control : heard) tags_.push_back(static_cast<int>(control.words[3]));
  return heard;
}

void Traffic::tell(const std::string& text) {
  const auto end =
      text.begin() + std::min<std::ptrdiff_t>(std::ssize(text), std::ptrdiff_t{kInlineBytes});
  const auto lock = group_.transport().lock();
  for (int r = 0; r < size(); ++r)
    if (r != rank())
      said_.push_back(group_.send(
          r, {.kind = Control::Kind::kText, .payload = std::vector<char>(text.begin(), end)}));
}

std::string Traffic::hear(int rank) {
  std::string text;
  wait_until(
      [&] {
        auto& texts = group_.texts(rank);
        if (texts.empty()) {
          if (group_.is_over(number_) || group_.patience_is_over()) throw group_.error();
          return false;
        }
        text.assign(texts.front().payload.begin(), texts.front().payload.end());
        texts.pop_front();
        return true;
      },
      {rank}, "waits for ", " to say what it asks for");
  return text;
}

TransferPtr Traffic::send(int rank, Piece piece, int64_t bytes) {
  const auto lock = group_.transport().lock();
  const auto to = static_cast<size_t>(rank);
  return group_.transport().send(group_.members()[to], tags_[to], std::move(piece), bytes);
}

TransferPtr Traffic::receive(int rank, int64_t bytes) {
  const auto lock = group_.transport().lock();
  return group_.transport().receive(group_.members()[static_cast<size_t>(rank)], group_.tag(),
                                    bytes);
}

void Traffic::wait(std::span<const TransferPtr> transfers) {
  const auto peer = [&](const TransferPtr& transfer) {
    const auto& members = group_.members();
    return static_cast<int>(std::find(members.begin(), members.end(), transfer->process) -
                            members.begin());
  };
  std::vector<int> missing;
  wait_until(
      [&] {
        missing.clear();
        for (const TransferPtr& transfer : transfers) {
          if (!transfer->done)
            missing.push_back(peer(transfer));
          else if (transfer->error != MPI_SUCCESS)
            fail(Code::kUnavailable, "MPI: ", error_text(transfer->error), ", ",
                 transfer->is_send ? "sending to rank " : "receiving from rank ", peer(transfer));
        }
        if (missing.empty()) return true;
        if (group_.is_over(number_) || group_.patience_is_over()) throw group_.error();
        return false;
      },
      missing, "waits for data to or from ", "");
}

void Traffic::cancel(std::span<const TransferPtr> transfers) {
  if (transfers.empty()) return;
  const auto lock = group_.transport().lock();
  for (const TransferPtr& transfer : transfers) group_.transport().cancel(transfer);
}

void Traffic::wait_until(const std::function<bool()>& ready, const std::vector<int>& missing,
                         std::string_view before, std::string_view after) {
  const auto begin = Clock::now();
  std::set<int> ranks;
  const auto names = [&] {
    ranks.insert(missing.begin(), missing.end());
    std::string names;
    for (const int r : ranks) names += (names.empty() ? "" : ", ") + group_.name(r);
    return names;
  };
  if (stall_.after.count() > 0 && stall_.after < limit_) {
    if (group_.transport().poll_until(begin + stall_.after, ready)) return;
    const std::string late = names();
    int first = 0;
    while (ranks.contains(first)) ++first;
    if (first == rank()) stall_.say(group_.name(rank()), describe(call_), late);
    ranks.clear();
  }
  if (group_.transport().poll_until(begin + limit_, ready)) return;
  const std::string late = names();
  throw Error(Code::kDeadlineExceeded,
              str(group_.name(rank()), " ", before, late, after, ", ", describe(call_),
                  ", for longer than ", std::chrono::duration<double>(limit_).count(), " s"),
              ranks.empty() ? "" : group_.peer(*ranks.begin()));
}

}  // namespace cohort::mpi
