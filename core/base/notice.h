#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace cohort {

// Prints whole lines for people on standard error, as "warning: ...\n". They begin a line of their
// own, also where a LiveLine stands, and are printable(), whoever wrote what they quote.
// Thread-safe.
void print_notice(std::string_view lines);

// Gives what print_notice() is given from now on, one or several whole and printable lines at a
// time, to `sink` instead of standard error, to which an empty one returns. A sink is called by one
// thread at a time, for which others that print have to wait. That thread may hold locks: all that
// the sink may call of Cohort is in this header, and what it prints itself is on standard error, as
// are the lines that it answers by an exception. After the return of set_notice_sink(), the sink
// before is called no more. Thread-safe.
void set_notice_sink(std::function<void(std::string_view lines)> sink);

// The last line of a terminal, drawn over again and again, such as a progress bar. Notices are
// printed above it. Of several, the one that was drawn last stands. Thread-safe.
class LiveLine {
 public:
  // `out` has to outlive it.
  explicit LiveLine(std::ostream& out) : out_(out) {}
  // Ends it.
  ~LiveLine() { end(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  // Shows `text`, which is narrower than the terminal, in place of what it showed before.
  void draw(std::string text);
  // Shows `text`, of any width, for good: what is printed next begins a line of its own.
  void finish(std::string_view text);
  // The same with the text that it shows, if it stands.
  void end();

 private:
  friend void print_notice(std::string_view lines);
  void show(std::string_view text) const;

  std::ostream& out_;
  std::string text_;
};

}  // namespace cohort
