#include "strategies/cluster/launcher/node_options.h"

#include <charconv>
#include <string_view>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr int kMaxNodes = 1000;
constexpr double kMaxWait = 7 * 24 * 3600;  // seconds
constexpr size_t kMaxJobId = 1000;
constexpr int kMaxFailures = 1000;

std::optional<int> number(std::string_view text, int min, int max) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < min || value > max) return std::nullopt;
  return value;
}

struct Range {
  int min, max;
};

Range parse_nnodes(const std::string& text) {
  const size_t colon = text.find(':');
  const auto min = number(std::string_view(text).substr(0, colon), 1, kMaxNodes);
  const auto max = colon == std::string::npos
                       ? min
                       : number(std::string_view(text).substr(colon + 1), 1, kMaxNodes);
  if (!min || !max) {
    invalid("--nnodes=", text,
            " is not allowed: expected N or MIN:MAX, numbers of nodes from 1 to ", kMaxNodes,
            ", as in --nnodes=4 or --nnodes=2:4");
  }
  if (*min > *max) {
    invalid("--nnodes=", text, " is not allowed: at least ", *min, " nodes are more than at most ",
            *max, "; did you mean --nnodes=", *max, ":", *min, "?");
  }
  return {*min, *max};
}

int parse_rank(const std::string& text, int max_nodes) {
  const auto rank = number(text, 0, max_nodes - 1);
  if (!rank) {
    invalid("--node_rank=", text, " is not allowed: expected an integer from 0 to ", max_nodes - 1,
            ", one less than --nnodes");
  }
  return *rank;
}

void refuse_flags_of_nodes(const Flags& flags) {
  for (const char* name : {"node_rank", "rendezvous", "host", "job_id", "join_timeout", "last_call",
                           "node_timeout", "node_failures", "allow_plaintext"}) {
    if (flags.is_given(name))
      invalid("--", name, " is for a job of several nodes: expected --nnodes beside it");
  }
}

}  // namespace

std::optional<NodeOptions> parse_node_options(Flags& flags) {
  const std::string nnodes =
      flags.text("nnodes", "", "nodes (hosts) of the job, N or MIN:MAX; start this on each");
  const std::string rank = flags.text("node_rank", "", "the place of this node among them");
  const std::string rendezvous =
      flags.text("rendezvous", "", "host:port where they meet; node 0 serves it");
  const std::string host = flags.text("host", "", "how other nodes reach this one");
  const std::string job_id =
      flags.text("job_id", "", "a text, no secret, that all nodes of a job give and others do not",
                 {.may_be_empty = false});
  const auto seconds = [&](const char* name, double fallback, double min, const char* help) {
    return NodeOptions::Seconds(flags.number(name, fallback, help, {.min = min, .max = kMaxWait}));
  };
  const auto join_timeout = seconds("join_timeout", 600, 0, "seconds for enough nodes to come");
  const auto last_call = seconds("last_call", 30, 0, "seconds for more than the fewest to come");
  const auto node_timeout =
      seconds("node_timeout", 10, 1, "seconds of silence after which a node is lost");
  const auto node_failures = flags.integer(
      "node_failures", 0, "failures in a row after which an elastic job goes on without their node",
      {.min = 0, .max = kMaxFailures});
  const bool plaintext =
      flags.boolean("allow_plaintext", false, "nodes may talk in plain text beyond this host");

  // What is given but empty is a mistake, as of a script's variable that is not set.
  const bool is_given = flags.is_given("nnodes");
  const Range range = parse_nnodes(is_given ? nnodes : "1");
  if (!is_given) refuse_flags_of_nodes(flags);
  if (rendezvous.empty() && range.max > 1) {
    invalid("--nnodes=", nnodes,
            " needs --rendezvous=HOST:PORT, where node 0 can be reached by all");
  }
  if (job_id.size() > kMaxJobId) invalid("--job_id is longer than ", kMaxJobId, " bytes");
  const int place = flags.is_given("node_rank") ? parse_rank(rank, range.max) : -1;
  const std::string own_host = host.empty() ? "" : Address::of(host, 1, "--host").host();
  if (rendezvous.empty()) return std::nullopt;
  NodeOptions options = {.rendezvous = Address::parse(rendezvous, "--rendezvous")};
  options.min_nodes = range.min;
  options.max_nodes = range.max;
  options.rank = place;
  options.host = own_host;
  options.job_id = job_id.empty() ? str("port ", options.rendezvous.port()) : job_id;
  options.join_timeout = join_timeout;
  options.last_call = last_call;
  options.node_timeout = node_timeout;
  options.node_failures = static_cast<int>(node_failures);
  options.allow_plaintext = plaintext;
  return options;
}

}  // namespace cohort::launcher
