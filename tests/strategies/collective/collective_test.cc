#include "strategies/collective/collective.h"

#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "strategies/collective/weighted_sums.h"
#include "tests/collective/ranks.h"
#include "tests/strategies/collective/tcp/tcp_group.h"
#include "tests/testing/eventually.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// On ranks that are threads, and on ranks over TCP.
class CollectiveTest : public ::testing::TestWithParam<bool> {
 protected:
  static void on_all(int size, const testing::RankWork& work) {
    testing::on_ranks(
        GetParam() ? testing::make_tcp_group(size) : make_in_process_communicators(size), work);
  }
};

INSTANTIATE_TEST_SUITE_P(Threads, CollectiveTest, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Tcp, CollectiveTest, ::testing::Values(true));

// rows x 2, counting up from `first`.
Tensor counting(int64_t rows, float first) {
  Tensor tensor(DType::kFloat32, {rows, 2});
  std::iota(tensor.data<float>(), tensor.data<float>() + rows * 2, first);
  return tensor;
}

std::vector<float> values_of(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

TEST_P(CollectiveTest, ReducesToAllToOneAndToParts) {
  on_all(3, [](int rank, Communicator& group) {
    const Tensor own = counting(4, static_cast<float>(rank));
    EXPECT_THAT(values_of(all_reduce(group, own)), ElementsAre(3, 6, 9, 12, 15, 18, 21, 24));
    const Tensor most = reduce(group, own, 1, ReduceOp::kMax);
    EXPECT_EQ(most.defined(), rank == 1);
    if (most.defined()) {
      EXPECT_EQ(values_of(most), values_of(counting(4, 2)));
    }
    const Tensor part = reduce_scatter(group, own);
    EXPECT_EQ(part.shape(), (Shape{rank == 0 ? 2 : 1, 2}));
    EXPECT_EQ(part.values<float>()[0], (std::vector<float>{3, 15, 21})[static_cast<size_t>(rank)]);
    EXPECT_EQ(values_of(own), values_of(counting(4, static_cast<float>(rank))));
  });
}

TEST_P(CollectiveTest, ReducesToPartsOfUnequalRows) {
  on_all(3, [](int rank, Communicator& group) {
    const std::vector<int64_t> rows{1, 0, 3};
    const Tensor part = reduce_scatter(group, counting(4, static_cast<float>(rank)), rows);
    EXPECT_EQ(part.shape(), (Shape{rows[static_cast<size_t>(rank)], 2}));
    if (rank == 2) {
      EXPECT_THAT(values_of(part), ElementsAre(9, 12, 15, 18, 21, 24));
    }
  });
}

TEST_P(CollectiveTest, RowsThatAreNotTheTensorsOrDifferAreAnErrorOnAllRanks) {
  const std::vector<int64_t> usual{1, 0, 3};
  const std::pair<std::vector<int64_t>, const char*> others[] = {
      {{1, 0, 2}, "rank 1 divides float32[4,2] among 3 ranks into 1, 0, 2 rows"},
      {{5, 0, -1}, "into 5, 0, -1 rows"},
      {{4}, "into 4 rows"},
      {{3, 0, 1}, "float32[4,2] in parts of 6, 0, 2 elements"}};
  for (const auto& [rows, text] : others)
    on_all(3, [&, rows = rows, text = text](int rank, Communicator& group) {
      const Error error = testing::error_of(
          [&] { reduce_scatter(group, counting(4, 1), rank == 1 ? rows : usual); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(text));
    });
}

TEST_P(CollectiveTest, ReducesManyTensorsAtOnce) {
  on_all(3, [](int rank, Communicator& group) {
    std::vector<Tensor> own;
    for (int64_t i = 0; i < 300; ++i)
      own.push_back(Tensor::full(i % 3 == 0 ? DType::kInt64 : DType::kFloat32, {i % 5, 2},
                                 static_cast<double>(i + rank)));
    PendingTensors started = start_all_reduce(group, own, ReduceOp::kMax);
    const std::vector<Tensor> sums = all_reduce(group, own);
    const std::vector<Tensor> most = started.wait();
    ASSERT_EQ(sums.size(), own.size());
    ASSERT_EQ(most.size(), own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      const auto number = static_cast<double>(i);
      const auto expect = [&](const Tensor& result, double value) {
        EXPECT_EQ(to_string(result),
                  to_string(Tensor::full(own[i].dtype(), own[i].shape(), value)));
      };
      expect(sums[i], 3 * number + 3);
      expect(most[i], number + 2);
      expect(own[i], number + rank);
    }
    EXPECT_EQ(testing::error_of([&] { started.wait(); }).code(), Code::kFailedPrecondition);
    EXPECT_TRUE(all_reduce(group, std::vector<Tensor>{}).empty());
    barrier(group);
  });
}

TEST_P(CollectiveTest, ManyTensorsTakeOneCollectiveForEachDtype) {
  on_all(2, [](int /*rank*/, Communicator& group) {
    const Tensor a = counting(3, 1), b = Tensor::scalar<int32_t>(7);
    std::vector<int64_t> bytes;  // moved by each collective
    group.set_observer([&](const CommunicationEvent& event) { bytes.push_back(event.bytes); });
    all_reduce(group, std::vector<Tensor>{a, b, a, b, a});
    EXPECT_THAT(bytes, ElementsAre(3 * 24, 2 * 4));
  });
}

// One rank's tensors against another's, and how each is named.
TEST_P(CollectiveTest, OtherTensorsThanOthersAreAnErrorOnAllRanksThatNamesBoth) {
  const Tensor a = counting(3, 1), b = counting(2, 1), whole = Tensor::scalar<int32_t>(7);
  struct Case {
    std::vector<Tensor> first, others;
    const char *of_first, *of_others;
  };
  const Case cases[] = {
      {{a, b}, {a}, "float32[3,2], float32[2,2]", "of float32[3,2]"},
      {{a, whole}, {a}, "of float32[3,2], int32[]", "of float32[3,2]"},
      {{a}, {}, "of float32[3,2]", "of no tensors"},
      {{a, b}, {b, a}, "float32[3,2], float32[2,2]", "float32[2,2], float32[3,2]"},
      // Those of each dtype would fit.
      {{a, whole, a}, {a, a, whole}, "float32[3,2], int32[], ", "float32[3,2], float32[3,2], "},
      {{a, Tensor()}, {a, Tensor::scalar(1.0f)}, "an undefined tensor", "float32"},
      {std::vector<Tensor>(20, a), std::vector<Tensor>(21, a),
       "of 20 tensors of 480 bytes: ", "of 21 tensors of 504 bytes: "}};
  for (const Case& c : cases)
    on_all(3, [&](int rank, Communicator& group) {
      const Error error =
          testing::error_of([&] { all_reduce(group, rank == 1 ? c.first : c.others); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(c.of_first));
      EXPECT_THAT(error.message(), HasSubstr(c.of_others));
    });
}

TEST_P(CollectiveTest, GathersWhatHasUnequalRows) {
  on_all(4, [](int rank, Communicator& group) {
    const Tensor own = counting(rank, static_cast<float>(10 * rank));  // rank 0 has none
    const std::vector<float> all{10, 11, 20, 21, 22, 23, 30, 31, 32, 33, 34, 35};
    EXPECT_EQ(values_of(all_gather(group, own)), all);
    const Tensor gathered = gather(group, own, 2);
    EXPECT_EQ(gathered.defined(), rank == 2);
    if (gathered.defined()) {
      EXPECT_EQ(values_of(gathered), all);
    }
  });
}

TEST_P(CollectiveTest, OthersNeedNotKnowWhatTheRootHas) {
  on_all(3, [](int rank, Communicator& group) {
    const Tensor whole = rank == 2 ? counting(4, 7) : Tensor();
    EXPECT_EQ(values_of(broadcast(group, whole, 2)), values_of(counting(4, 7)));
    EXPECT_EQ(values_of(scatter(group, whole, 2)),
              values_of(rank == 0 ? counting(2, 7) : counting(1, rank == 1 ? 11 : 13)));
  });
}

TEST_P(CollectiveTest, MistakesAreTheSameErrorOnAllRanksAndEndNothing) {
  on_all(3, [](int rank, Communicator& group) {
    const Tensor own(DType::kFloat32, rank == 0 ? Shape{17, 1311} : Shape{17, 23, 57});
    const Error error = testing::error_of([&] { all_gather(group, own); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("rank 0 gave float32[17,1311] and rank 1 gave "
                                           "float32[17,23,57]"));
    EXPECT_THAT(testing::error_of([&] {
                  all_gather(group, rank == 1 ? Tensor::zeros(DType::kInt32, {2})
                                              : Tensor::zeros(DType::kFloat32, {2}));
                }).message(),
                HasSubstr("rank 1 gave int32[2]"));
    EXPECT_THAT(testing::error_of([&] { broadcast(group, Tensor(), 1); }).message(),
                HasSubstr("rank 1 gave a tensor that is not defined"));
    EXPECT_THAT(testing::error_of([&] { scatter(group, Tensor::scalar(1.0f), 1); }).message(),
                HasSubstr("rank 1 gave a scalar"));
    std::vector<Tensor> parts(rank == 2 ? 2 : 3, Tensor::scalar(1.0f));
    EXPECT_THAT(testing::error_of([&] { all_to_all(group, parts); }).message(),
                HasSubstr("each of the 3 ranks, but rank 2 gave 2"));
    parts = std::vector<Tensor>(3, Tensor::scalar(1.0f));
    if (rank == 0) parts[1] = Tensor();
    EXPECT_THAT(testing::error_of([&] { all_to_all(group, parts); }).message(),
                HasSubstr("the one of rank 0 for rank 1 is not defined"));
    EXPECT_EQ(all_reduce(group, Tensor::scalar(1.0f)).item(), 3);
  });
}

// All of them; to one rank it is rank 1.
using Reduction = std::function<void(Communicator&, const Tensor&)>;
std::vector<Reduction> reductions() {
  return {[](Communicator& group, const Tensor& own) { all_reduce(group, own); },
          [](Communicator& group, const Tensor& own) { start_all_reduce(group, own).wait(); },
          [](Communicator& group, const Tensor& own) { reduce(group, own, 1); },
          [](Communicator& group, const Tensor& own) { reduce_scatter(group, own); }};
}

TEST_P(CollectiveTest, AReductionOfNothingOnOneRankIsAnErrorOnAll) {
  const Tensor usual[] = {Tensor::zeros(DType::kInt32, {3}), Tensor::scalar(1.0f)};
  for (const Reduction& reduction : reductions())
    for (const Tensor& own : usual)
      on_all(3, [&](int rank, Communicator& group) {
        const Error error =
            testing::error_of([&] { reduction(group, rank == 1 ? Tensor() : own); });
        EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
        EXPECT_THAT(error.what(),
                    AnyOf(AllOf(HasSubstr("rank 1"), HasSubstr(" of an undefined tensor")),
                          HasSubstr("a scalar has no rows")));
      });
}

TEST_P(CollectiveTest, ReductionsOfOtherShapesAreAnErrorOnAllRanksThatNamesBoth) {
  const std::pair<Shape, Shape> shapes[] = {
      {{17, 1311}, {17, 23, 57}},  // as many elements, and as many rows
      {{20, 2}, {20, 10}},
      {{20, 10, 2}, {20, 10}},
      {{17, 17, 17}, {18, 18, 18}}};
  for (const Reduction& reduction : reductions())
    for (const auto& [first, others] : shapes)
      on_all(3, [&, first = first, others = others](int rank, Communicator& group) {
        const Tensor own(DType::kFloat32, rank == 0 ? first : others);
        const Error error = testing::error_of([&] { reduction(group, own); });
        EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
        EXPECT_THAT(error.message(), HasSubstr(str("float32", first)));
        EXPECT_THAT(error.message(), HasSubstr(str("float32", others)));
      });
}

// Else a rank that has caught its own error would meet the others one call later.
TEST_P(CollectiveTest, WhatOneRankAloneSeesToBeWrongIsAnErrorOnAllAndEndsTheGroup) {
  using Work = std::function<void(Communicator&)>;
  struct Mistake {
    Work wrong, usual;
    const char* text;
  };
  const Tensor whole = Tensor::zeros(DType::kInt32, {2}), flags = Tensor::zeros(DType::kBool, {2});
  const auto mean = [&](Communicator& group) { all_reduce(group, whole, ReduceOp::kMean); };
  const Mistake mistakes[] = {
      {mean, [&](Communicator& group) { all_reduce(group, whole); },
       "an all-reduce (mean) of int32[2]"},
      {mean, mean, "the mean needs a floating dtype, got int32"},
      {[&](Communicator& group) { start_all_reduce(group, flags).wait(); },
       [&](Communicator& group) { start_all_reduce(group, whole).wait(); },
       "an all-reduce (sum) of bool[2]"},
      {[&](Communicator& group) { reduce(group, whole, 5); },
       [&](Communicator& group) { reduce(group, whole, 0); },
       "a reduce (sum) of int32[2] to rank 5"},
      {[&](Communicator& group) { broadcast(group, whole, 5); },
       [&](Communicator& group) { broadcast(group, whole, 0); }, " broadcast from rank 5"},
      {[&](Communicator& group) { scatter(group, whole, -1); },
       [&](Communicator& group) { scatter(group, whole, 0); }, " scatter from rank -1"},
      {[&](Communicator& group) { gather(group, whole, 3); },
       [&](Communicator& group) { gather(group, whole, 0); }, " to rank 3"},
      {[&](Communicator& group) { broadcast_bytes(group, "x", 3); },
       [&](Communicator& group) { broadcast_bytes(group, "x", 0); },
       " broadcast_bytes from rank 3"}};
  for (const auto& [wrong, usual, text] : mistakes)
    on_all(3, [&, wrong = wrong, usual = usual, text = text](int rank, Communicator& group) {
      const Error error = testing::error_of([&] { (rank == 1 ? wrong : usual)(group); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(text));
      EXPECT_EQ(testing::error_of([&] { usual(group); }).message(), error.message());
    });
}

TEST_P(CollectiveTest, ExchangesTensorsOfAnyKind) {
  on_all(3, [](int rank, Communicator& group) {
    std::vector<Tensor> out;
    for (int r = 0; r < 3; ++r)
      out.push_back(r == 1 ? Tensor::full(DType::kInt64, {rank, 2}, rank)
                           : Tensor::scalar(static_cast<float>(10 * rank + r)));
    const auto in = all_to_all(group, out);
    ASSERT_EQ(in.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      const Tensor& value = in[static_cast<size_t>(r)];
      if (rank == 1) {
        EXPECT_EQ(value.spec(), (TensorSpec{DType::kInt64, {r, 2}}));
        for (const int64_t v : value.values<int64_t>()) EXPECT_EQ(v, r);
      } else {
        EXPECT_EQ(value.item(), 10 * r + rank);
      }
    }
  });
}

// The classic exercise: a token goes round, and everybody adds its rank.
TEST_P(CollectiveTest, SendsAroundARing) {
  on_all(4, [](int rank, Communicator& group) {
    const int next = (rank + 1) % 4, previous = (rank + 3) % 4;
    if (rank == 0) send(group, Tensor::from<int32_t>({0, 100}, {2}), next, 3);
    Message message = receive(group, previous);
    EXPECT_EQ(message.source, previous);
    EXPECT_EQ(message.tag, 3);
    message.value.data<int32_t>()[0] += rank;
    if (rank == 0) {
      EXPECT_THAT(message.value.values<int32_t>(), ElementsAre(6, 100));
    } else {
      send(group, message.value, next, message.tag);
    }
  });
}

TEST_P(CollectiveTest, ReducesInTheBackground) {
  on_all(2, [](int rank, Communicator& group) {
    Pending first = start_all_reduce(group, counting(50000, static_cast<float>(rank)));
    { const Pending nobody_waits = start_all_reduce(group, Tensor::scalar(1.0f)); }
    Pending moved = std::move(first);
    EXPECT_EQ(moved.wait().values<float>()[9], 19);
    EXPECT_EQ(testing::error_of([&] { moved.wait(); }).code(), Code::kFailedPrecondition);
    barrier(group);
  });
}

// Else the other rank would wait for what this one would have sent next.
TEST_P(CollectiveTest, AnErrorBesideWhatIsInTheBackgroundEndsTheGroup) {
  on_all(2, [](int rank, Communicator& group) {
    const auto fail_beside = [&] {
      const Pending reducing = start_all_reduce(group, Tensor::scalar(1.0f));
      invalid("of the program");
    };
    if (rank == 0)
      EXPECT_EQ(testing::error_of(fail_beside).code(), Code::kInvalidArgument);
    else
      EXPECT_THAT(testing::error_of([&] { receive(group, 0); }).message(),
                  HasSubstr("an error of its own"));
  });
}

TEST_P(CollectiveTest, TellsWhatIsDoneAndTakesAnotherInItsPlace) {
  on_all(2, [](int rank, Communicator& group) {
    Pending pending = start_all_reduce(group, Tensor::scalar(static_cast<float>(rank)));
    EXPECT_TRUE(testing::eventually([&] { return pending.is_done(); }));
    EXPECT_EQ(pending.wait().item(), 1);
    EXPECT_TRUE(pending.is_done());
    pending = start_all_reduce(group, Tensor::scalar(5.0f));
    pending = start_all_reduce(group, Tensor::scalar(7.0f));  // the one before is waited for
    EXPECT_EQ(pending.wait().item(), 14);
  });
}

TEST_P(CollectiveTest, RanksSendToEachOtherBeforeTheyReceive) {
  on_all(2, [](int rank, Communicator& group) {
    const Tensor large = Tensor::full(DType::kFloat32, {300'000}, rank);
    std::vector<Pending> sending;
    sending.push_back(start_send(group, large, 1 - rank, 4));
    sending.push_back(start_send(group, counting(2, static_cast<float>(rank)), 1 - rank, 5));
    const Message small = receive(group, kAnyRank, 5);
    EXPECT_EQ(small.source, 1 - rank);
    EXPECT_EQ(values_of(small.value), values_of(counting(2, static_cast<float>(1 - rank))));
    const Message first = receive(group);
    EXPECT_EQ(first.tag, 4);
    EXPECT_EQ(first.value.shape(), large.shape());
    EXPECT_EQ(first.value.values<float>()[299'999], static_cast<float>(1 - rank));
    for (Pending& one : sending) one.wait();
    EXPECT_EQ(testing::error_of([&] { start_send(group, Tensor(), 1 - rank); }).code(),
              Code::kInvalidArgument);
    barrier(group);
  });
}

TEST_P(CollectiveTest, WhatDescribesNoTensorIsToldAsThat) {
  on_all(2, [](int rank, Communicator& group) {
    const int64_t nothing = 0;
    for (const int64_t bytes : {int64_t{0}, int64_t{sizeof nothing}}) {
      if (rank == 0) {
        group.send(&nothing, bytes, 1, 6);
        continue;
      }
      const Error error = testing::error_of([&] { receive(group, 0, 6); });
      EXPECT_EQ(error.code(), Code::kDataLoss) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("rank 0 has sent what describes no tensor"));
    }
    barrier(group);
  });
}

TEST_P(CollectiveTest, BytesOfUnequalLengthsAreBroadcastAndGathered) {
  on_all(3, [](int rank, Communicator& group) {
    const std::string own(static_cast<size_t>(rank), static_cast<char>('a' + rank));
    EXPECT_THAT(all_gather_bytes(group, own), ElementsAre("", "b", "cc"));
    EXPECT_EQ(broadcast_bytes(group, own, 2), "cc");
    EXPECT_EQ(broadcast_bytes(group, own, 0), "");
  });
}

// What these calls tell each other first is never taken for another call's.
TEST_P(CollectiveTest, OtherCallsOfAsManyBytesAreAMistakeOnAllRanks) {
  using Work = std::function<void(Communicator&)>;
  const Tensor one = Tensor::scalar(1.0f);
  const auto gather_raw = [](int64_t bytes) -> Work {
    return [bytes](Communicator& group) {
      const std::vector<char> own(static_cast<size_t>(bytes));
      std::vector<char> all(own.size() * 2);
      group.all_gather(own.data(), all.data(), std::vector<int64_t>{bytes, bytes});
    };
  };
  const Work broadcast_raw = [](Communicator& group) {
    int64_t value = 0;
    group.broadcast(&value, &value, sizeof value, 0);
  };
  const std::pair<Work, Work> pairs[] = {
      {[](Communicator& group) { broadcast_bytes(group, "x", 0); }, broadcast_raw},
      {[](Communicator& group) { all_gather_bytes(group, "x"); }, gather_raw(8)},
      {[&](Communicator& group) {
         all_to_all(group, {one, one});
       },
       gather_raw(16)},
      {[&](Communicator& group) { premultiplied_sum(group, one, 2); },
       [&](Communicator& group) { adasum(group, one); }},
      {[&](Communicator& group) { scatter(group, one, 0); },
       [&](Communicator& group) { broadcast(group, one, 0); }}};
  for (const auto& [first, second] : pairs)
    on_all(2, [&, first = first, second = second](int rank, Communicator& group) {
      const Error error = testing::error_of([&] { (rank == 0 ? first : second)(group); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("must make the same calls"));
    });
}

// Only the size is looked at.
TEST_P(CollectiveTest, TooManyBytesAreTheSameErrorOnAllRanksAndEndNothing) {
  on_all(2, [](int rank, Communicator& group) {
    const char byte = 'x';
    const std::string_view bytes(&byte, rank == 1 ? kMostBytes + 1 : 1);
    for (const bool gathers : {true, false}) {
      const Error error = testing::error_of([&] {
        if (gathers)
          all_gather_bytes(group, bytes);
        else
          broadcast_bytes(group, bytes, 1);
      });
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr("rank 1 gave 1073741825 bytes; allowed are 0 to "));
    }
    EXPECT_THAT(all_gather_bytes(group, "y"), ElementsAre("y", "y"));
  });
}

}  // namespace
}  // namespace cohort::collective
