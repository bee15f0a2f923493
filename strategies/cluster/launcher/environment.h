#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::launcher {

// The environment of a process, as a value.
class Environment {
 public:
  Environment() = default;
  // That of this process.
  static Environment current();

  bool has(const std::string& name) const { return variables_.contains(name); }
  // The value of `name`, or "" without one.
  std::string_view get(const std::string& name) const;
  void set(const std::string& name, std::string value) { variables_[name] = std::move(value); }
  void unset(const std::string& name) { variables_.erase(name); }
  // "NAME=value" of each.
  std::vector<std::string> strings() const;

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace cohort::launcher
