#include "strategies/cluster/launcher/messages.h"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "strategies/cluster/json_document.h"
#include "strategies/cluster/launcher/signals.h"

namespace cohort::launcher {

using Json = nlohmann::json;

// The fields of each message.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Node, name, host, rank, chief, workers, ps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Round, restart, job_id, index, nodes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Join, protocol, job_id, terms, node)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Refused, code, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Notice, lines)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Start, round)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Settle, reason, briefly)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(End, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Signal, number, again, origin)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failure, what, code, weight, last_lines)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ended, failures, ends)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Leave, code, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finish, code)

static void to_json(Json& json, const Ping&) { json = Json::object(); }
static void from_json(const Json&, Ping&) {}
static void to_json(Json& json, const TrainersEnded&) { json = Json::object(); }
static void from_json(const Json&, TrainersEnded&) {}

namespace {

// In the order of the alternatives of Message.
constexpr std::string_view kTypes[] = {"join",           "refused", "ping",  "notice",
                                       "start",          "settle",  "end",   "signal",
                                       "trainers_ended", "ended",   "leave", "finish"};
static_assert(std::size(kTypes) == std::variant_size_v<Message>);

// What follows converts numbers to int without looking at them.
void check_numbers(const Json& json) {
  if (json.is_number()) {
    if (!json.is_number_integer() || json > INT32_MAX || json < INT32_MIN) {
      fail(Code::kDataLoss, "a number is not of 32 bits");
    }
  } else if (json.is_structured()) {
    for (const Json& element : json) check_numbers(element);
  }
}

bool is_port(int port) { return port > 0 && port <= 65535; }

void check(const Node& node) {
  const auto are_ports = [](const std::vector<int>& ports) {
    return std::all_of(ports.begin(), ports.end(), is_port);
  };
  const bool is_node = (node.chief == 0 || is_port(node.chief)) && are_ports(node.workers) &&
                       are_ports(node.ps) && node.rank >= -1;
  if (!is_node) fail(Code::kDataLoss, "a node has a port or a rank that there cannot be");
  Address::of(node.host, 1);
}

void check(const Round& round) {
  for (const Node& node : round.nodes) check(node);
  if (round.index < 0 || static_cast<size_t>(round.index) >= round.nodes.size()) {
    fail(Code::kDataLoss, "there is no node ", round.index);
  }
}

// Those that cohort-run passes on, and so the only ones that another node may have its tasks sent.
void check(const Signal& signal) {
  if (std::ranges::find(kPassedOn, signal.number) == std::end(kPassedOn)) {
    fail(Code::kDataLoss, "signal ", signal.number, " is none that is passed on");
  }
}

void check(const Message& message) {
  if (const auto* join = std::get_if<Join>(&message)) check(join->node);
  if (const auto* start = std::get_if<Start>(&message)) check(start->round);
  if (const auto* signal = std::get_if<Signal>(&message)) check(*signal);
}

template <size_t kIndex = 0>
Message read(size_t type, const Json& json) {
  if constexpr (kIndex < std::variant_size_v<Message>) {
    if (type != kIndex) return read<kIndex + 1>(type, json);
    std::variant_alternative_t<kIndex, Message> body;
    from_json(json, body);
    return body;
  } else {
    fail(Code::kDataLoss, "a message of an unknown type");
  }
}

}  // namespace

std::string encode(const Message& message) {
  Json json;
  std::visit([&](const auto& body) { to_json(json, body); }, message);
  json["type"] = kTypes[message.index()];
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Message decode(std::string_view text) {
  try {
    const Json json = config::parse_object(text, "message");
    check_numbers(json);
    const auto* type = std::find(std::begin(kTypes), std::end(kTypes),
                                 json.at("type").get_ref<const std::string&>());
    Message message = read(static_cast<size_t>(type - std::begin(kTypes)), json);
    check(message);
    return message;
  } catch (const Error& error) {
    fail(Code::kDataLoss, error.message());
  } catch (const Json::exception& error) {
    fail(Code::kDataLoss, error.what());
  }
}

}  // namespace cohort::launcher
