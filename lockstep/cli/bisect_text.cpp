#include "lockstep/cli/bisect_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::json;

/// Reads back to the same number.
template <class Number>
std::string exact(Number value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

struct Pair {
  std::string a;
  std::string b;
};

Pair values_of(const FigureDifference& difference) {
  if (difference.what == "loss") return {exact(difference.a.loss), exact(difference.b.loss)};
  if (difference.what == "grad_norm") {
    return {exact(difference.a.grad_norm), exact(difference.b.grad_norm)};
  }
  return {difference.a.param_digest, difference.b.param_digest};
}

/// "step 24: loss 3.5 in A, 3.25 in B".
std::string text_of(const FigureDifference& difference, const char* of_a, const char* of_b) {
  const Pair values = values_of(difference);
  const std::string step = base::str("step ", difference.step, ": ");
  if (values.a.empty() || values.a == values.b) {
    return base::str(step, difference.what, " differs, though not in its parameters");
  }
  return base::str(step, difference.what, " ", values.a, " ", of_a, ", ", values.b, " ", of_b);
}

std::string text_of(const StateDifference& state, const char* of_a, const char* of_b) {
  const std::string where = base::str("checkpoint of step ", state.step, ": ");
  if (state.tensor) {
    const checkpoints::TensorDifference& tensor = *state.tensor;
    return base::str(where, tensor.kind, " ", tensor.name, ": element ", tensor.first, " is ",
                     exact(tensor.first_a), " ", of_a, ", ", exact(tensor.first_b), " ", of_b,
                     tensor.elements > 1
                         ? base::str(" (", tensor.elements, " of ", tensor.numel, " elements)")
                         : "");
  }
  const auto or_none = [](const std::string& text) { return text.empty() ? "none" : text; };
  return base::str(where, state.other->what, ": ", or_none(state.other->a), " ", of_a, ", ",
                   or_none(state.other->b), " ", of_b);
}

std::string header(const char* name, const RunRecord& run) {
  const int64_t last = run.steps.rbegin()->first;
  const int ranks = run.ranks_of(last);
  std::string column = name;
  column.resize(10, ' ');
  return base::str(column, run.folder, ": steps ", run.steps.begin()->first, " to ", last, ", ",
                   ranks, ranks == 1 ? " rank" : " ranks",
                   run.identity.empty() ? "" : ", identity " + run.identity, "\n");
}

/// Whether a run comes to what it has recorded, in a sentence.
std::string text_of_replay(const char* name, const Reproduction& found, const RunRecord& run) {
  std::string text = base::str("replay of ", name, " from step ", found.from, " to ", found.to,
                               " on ", found.ranks, found.ranks == 1 ? " rank: " : " ranks: ");
  if (found.reproduces()) {
    text += "comes to what it has recorded\n";
  } else {
    text += "does not come to what it has recorded\n";
    if (found.figure) {
      text += base::str("  ", text_of(*found.figure, "in the record", "in the replay"), "\n");
    }
    if (found.state) {
      text += base::str("  ", text_of(*found.state, "in the record", "in the replay"), "\n");
    }
  }
  if (!run.identity.empty() && !found.identity.empty() && run.identity != found.identity) {
    text += base::str("  recorded as ", run.identity, ", and here it is ", found.identity,
                      ": its own bits cannot be had here\n");
  }
  return text;
}

std::string settings_text(const Bisection& found) {
  if (found.settings.empty()) return "settings  no difference but names, logs and checkpoints\n";
  std::string text;
  for (const SettingDifference& one : found.settings) {
    text += base::str(text.empty() ? "settings  " : "          ", one.key, " is ", one.a, " in A, ",
                      one.b, " in B", one.free ? " (changes no result)" : "", "\n");
  }
  return text;
}

std::string record_text(const Bisection& found) {
  const std::string steps =
      base::str("steps ", found.first_common, " to ", found.last_common, " of both");
  if (found.recorded) {
    return base::str("records   first differ at ", text_of(*found.recorded, "in A", "in B"), "\n");
  }
  return base::str("records   equal in ", steps, ": every loss and gradient norm, and ",
                   found.digests, found.digests == 1 ? " digest" : " digests", " of parameters\n");
}

std::string difference_text(const report::RunDifference& difference) {
  const auto of = [&](const report::Difference& one) {
    const std::string text = report::text_of(one, "in B");
    return text +
           (one.rank >= 0 ? difference.rank_is_of_b ? " (a rank of B)" : " (a rank of A)" : "");
  };
  std::string text = base::str("first difference: ", of(difference.first), "\n");
  if (difference.element) text += base::str("first element: ", of(*difference.element), "\n");
  return text;
}

std::string verdict_text(const Bisection& found) {
  switch (found.outcome) {
    case Bisection::Outcome::equal:
      return found.digests > 0 ? "equal\n"
                               : "equal as far as they have recorded: no digest of parameters was "
                                 "(log.digest_every)\n";
    case Bisection::Outcome::found:
      if (found.difference) return difference_text(*found.difference);
      return base::str("replays differ at ", text_of(*found.replayed, "in A", "in B"),
                       ", and not in what their ranks have witnessed\n");
    case Bisection::Outcome::state:
      return base::str("first difference: ", text_of(*found.start, "in A", "in B"), "\n");
    case Bisection::Outcome::not_reproduced:
      return "replays of both are equal: what differs is not what they compute, but what a record "
             "says that was not computed so here\n";
  }
  return "";
}

const char* name_of(Bisection::Outcome outcome) {
  switch (outcome) {
    case Bisection::Outcome::equal:
      return "equal";
    case Bisection::Outcome::found:
      return "found";
    case Bisection::Outcome::state:
      return "state";
    case Bisection::Outcome::not_reproduced:
      return "not_reproduced";
  }
  return "";
}

/// JSON has no word for inf and nan.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json json_of(const std::optional<FigureDifference>& difference) {
  if (!difference) return nullptr;
  const auto value = [&](const StepFigures& of) -> Json {
    if (difference->what == "loss") return number(of.loss);
    if (difference->what == "grad_norm") return number(of.grad_norm);
    return of.param_digest;
  };
  return {{"step", difference->step},
          {"what", difference->what},
          {"a", value(difference->a)},
          {"b", value(difference->b)}};
}

Json json_of(const std::optional<StateDifference>& state) {
  if (!state) return nullptr;
  if (!state->tensor) {
    return {{"step", state->step},
            {"what", state->other->what},
            {"a", state->other->a},
            {"b", state->other->b}};
  }
  const checkpoints::TensorDifference& tensor = *state->tensor;
  return {{"step", state->step},         {"kind", tensor.kind},   {"name", tensor.name},
          {"elements", tensor.elements}, {"index", tensor.first}, {"a", number(tensor.first_a)},
          {"b", number(tensor.first_b)}};
}

Json json_of(const std::optional<Reproduction>& found) {
  if (!found) return nullptr;
  return {{"from", found->from},
          {"to", found->to},
          {"ranks", found->ranks},
          {"identity", found->identity},
          {"reproduces", found->reproduces()},
          {"figure", json_of(found->figure)},
          {"state", json_of(found->state)}};
}

Json json_of(const report::Difference& difference) {
  return {{"step", difference.step},        {"kind", difference.kind},
          {"name", difference.name},        {"layer", difference.layer},
          {"leaf", difference.leaf},        {"micro", difference.micro},
          {"rank", difference.rank},        {"index", difference.index},
          {"a", number(difference.layout)}, {"b", number(difference.alone)}};
}

Json json_of(const std::optional<report::RunDifference>& difference) {
  if (!difference) return nullptr;
  Json json = json_of(difference->first);
  json["rank_is_of_b"] = difference->rank_is_of_b;
  json["element"] = difference->element ? json_of(*difference->element) : Json(nullptr);
  return json;
}

Json json_of(const RunRecord& run) {
  const int64_t last = run.steps.rbegin()->first;
  return {{"folder", run.folder},
          {"first_step", run.steps.begin()->first},
          {"last_step", last},
          {"ranks", run.ranks_of(last)},
          {"identity", run.identity}};
}

}  // namespace

std::string text_of(const Bisection& found, const RunRecord& a, const RunRecord& b) {
  std::string text = header("A", a) + header("B", b) + settings_text(found) + record_text(found);
  if (found.a) text += text_of_replay("A", *found.a, a);
  if (found.b) text += text_of_replay("B", *found.b, b);
  text += verdict_text(found);
  for (const std::string& note : found.notes) text += note + "\n";
  return text;
}

Json to_json(const Bisection& found, const RunRecord& a, const RunRecord& b) {
  Json settings = Json::array();
  for (const SettingDifference& one : found.settings) {
    settings.push_back(
        {{"key", one.key}, {"a", one.a}, {"b", one.b}, {"changes_result", !one.free}});
  }
  return {{"outcome", name_of(found.outcome)},
          {"a", json_of(a)},
          {"b", json_of(b)},
          {"first_common", found.first_common},
          {"last_common", found.last_common},
          {"digests", found.digests},
          {"settings", settings},
          {"recorded", json_of(found.recorded)},
          {"low", found.low},
          {"high", found.high},
          {"start", json_of(found.start)},
          {"replay_of_a", json_of(found.a)},
          {"replay_of_b", json_of(found.b)},
          {"replayed", json_of(found.replayed)},
          {"difference", json_of(found.difference)},
          {"notes", found.notes}};
}

std::string text_of(const Reproduction& found, const RunRecord& run) {
  return header("run", run) + text_of_replay("it", found, run);
}

Json to_json(const Reproduction& found, const RunRecord& run) {
  return {{"run", json_of(run)}, {"replay", json_of(std::optional(found))}};
}

}  // namespace lockstep::cli
