#include <memory>
#include <string>
#include <utility>

#include "core/collective/forwarding_communicator.h"
#include "strategies/collective/mpi/mpi_communicator.h"
#include "tests/collective/conformance.h"

// The conformance suite with a process for each rank: to be run by mpirun, on as many processes as
// the largest group has ranks. Every process runs the same tests in the same order.
namespace cohort::testing {
namespace {

// Below kHangLimit, so that a test that hangs tells who waited for whom.
const MpiOptions kOptions{.time_limit_seconds = 60};

// Lives until the others have done with it too, as it does where the ranks of a test are threads.
class UntilAllHaveDone final : public ForwardingCommunicator {
 public:
  UntilAllHaveDone(std::unique_ptr<Communicator> group, std::unique_ptr<Communicator> twin)
      : ForwardingCommunicator(std::move(group)), twin_(std::move(twin)) {}
  ~UntilAllHaveDone() override {
    try {
      twin_->barrier();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }

 private:
  const std::unique_ptr<Communicator> twin_;
};

// The first `size` processes of a new world; the others have no rank.
Group make(int size) {
  const auto world = make_mpi_communicator(kOptions);
  if (world->size() < size) {
    ADD_FAILURE() << "there are " << world->size() << " processes for " << size << " ranks";
    return {};
  }
  Group group;
  const int color = world->rank() < size ? 0 : -1;
  auto own = world->split(color), twin = world->split(color);
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  if (own == nullptr) return group;
  // These are about ranks that leave before the others have done.
  if (test.starts_with("ARankThatLeaves") || test.starts_with("RanksLeaveAtOnce"))
    group.push_back(std::move(own));
  else
    group.push_back(std::make_unique<UntilAllHaveDone>(std::move(own), std::move(twin)));
  return group;
}
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorConformanceTest, groups_of({{"Processes", make}}),
                         group_name);

}  // namespace
}  // namespace cohort::testing
