#include "lockstep/torch_inside/recompute.h"

#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/torch_inside/drawing.h"

namespace lockstep::torch_inside {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local bool recomputing_here = false;

/// While it lives, this thread is in a second run, or in a first one inside it.
class Recomputing {
 public:
  explicit Recomputing(bool now) : before_(std::exchange(recomputing_here, now)) {}
  ~Recomputing() { recomputing_here = before_; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;

 private:
  bool before_;
};

#if TORCH_VERSION_MAJOR >= 2
bool autocast_on() { return at::autocast::is_autocast_enabled(at::kCPU); }
void set_autocast_on(bool on) { at::autocast::set_autocast_enabled(at::kCPU, on); }
at::ScalarType autocast_type() { return at::autocast::get_autocast_dtype(at::kCPU); }
void set_autocast_type(at::ScalarType type) { at::autocast::set_autocast_dtype(at::kCPU, type); }
#else
bool autocast_on() { return at::autocast::is_cpu_enabled(); }
void set_autocast_on(bool on) { at::autocast::set_cpu_enabled(on); }
at::ScalarType autocast_type() { return at::autocast::get_autocast_cpu_dtype(); }
void set_autocast_type(at::ScalarType type) { at::autocast::set_autocast_cpu_dtype(type); }
#endif

struct Autocast {
  bool on = autocast_on();
  at::ScalarType type = autocast_type();
};

/// While it lives, this thread casts as `autocast` says. Casts are not kept: one made without a
/// graph would serve a run with a graph, and its weight would get no gradient.
class AutocastScope {
 public:
  explicit AutocastScope(const Autocast& autocast) {
    set_autocast_type(autocast.type);
    set_autocast_on(autocast.on);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastScope() {
    set_autocast_type(before_.type);
    set_autocast_on(before_.on);
    at::autocast::set_autocast_cache_enabled(cached_before_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  Autocast before_;
  bool cached_before_ = at::autocast::is_autocast_cache_enabled();
};

/// What a function needs to run again, held by the graph.
struct Held final : torch::CustomClassHolder {
  TensorFunction fn;
  Autocast autocast;
  at::Generator draws_from;           // undefined: it draws nothing
  std::vector<size_t> with_gradient;  // of the outputs: those that have, or may have, a gradient
  size_t outputs = 0;
};

bool may_have_gradient(const at::Tensor& output) {
  return output.defined() && (output.is_floating_point() || output.is_complex());
}

std::vector<uint32_t> versions_of(const std::vector<at::Tensor>& tensors) {
  std::vector<uint32_t> versions;
  for (const at::Tensor& tensor : tensors) {
    const bool counted = tensor.defined() && !tensor.is_inference();
    versions.push_back(counted ? tensor._version() : 0);
  }
  return versions;
}

std::vector<at::Tensor> first_run(Held& held, const std::vector<at::Tensor>& inputs) {
  const std::vector<uint32_t> before = versions_of(inputs);
  const AutocastScope autocast(held.autocast);
  const Recomputing no(false);  // also where this is part of another function's second run
  Drawing drawing;
  std::vector<at::Tensor> outputs = held.fn(inputs);
  held.draws_from = drawing.start();
  if (versions_of(inputs) != before) {
    throw UsageError(
        "checkpoint: the function changed an input in place, so backward could not run it again "
        "from where it began.\n  Let it change a clone of the input.");
  }
  held.outputs = outputs.size();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (may_have_gradient(outputs[i])) held.with_gradient.push_back(i);
  }
  return outputs;
}

std::vector<at::Tensor> second_run(const Held& held, const std::vector<at::Tensor>& inputs) {
  const at::AutoGradMode with_graph(true);
  const AutocastScope autocast(held.autocast);
  const Drawing drawing(held.draws_from);
  const Recomputing yes(true);
  std::vector<at::Tensor> outputs = held.fn(inputs);
  bool same = outputs.size() == held.outputs;
  for (const size_t i : held.with_gradient) same = same && may_have_gradient(outputs[i]);
  if (!same) {
    throw UsageError(base::str(
        "checkpoint: the function returned other tensors when it ran again (", outputs.size(), ", ",
        held.outputs, " before).\n  It must compute the same each time."));
  }
  return outputs;
}

/// A node that is older than the second run belongs to the graph outside. This backward would go on
/// into it, and the one that is under way would pass there again.
void require_own_nodes(const torch::autograd::edge_list& roots, uint64_t first_of_run) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open;
  const auto visit = [&](const torch::autograd::Edge& edge) {
    torch::autograd::Node* const node = edge.function.get();
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const auto& root : roots) visit(root);
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    // Accumulators of leaves have the highest number there is.
    if (node->sequence_nr() < first_of_run) {
      throw UsageError(
          base::str("checkpoint: the function uses a tensor that is part of the graph (made by ",
                    node->name(),
                    ") and none of its inputs.\n  Pass it as an input; only leaves, such as "
                    "parameters, may be captured."));
    }
    for (const auto& edge : node->next_edges()) visit(edge);
  }
}

void require_plain_backward(torch::autograd::Engine& engine) {
  if (at::GradMode::is_enabled()) {
    throw UsageError(
        "checkpoint: second derivatives are asked for (create_graph), which need the graph that "
        "was not kept.\n  Call the function without checkpoint.");
  }
  if (!engine.is_checkpoint_valid()) {
    throw UsageError(
        "checkpoint: gradients of chosen tensors are asked for (torch::autograd::grad, or backward "
        "with inputs); those of the function's parameters would be missed.\n  Use backward() and "
        "read .grad, or call the function without checkpoint.");
  }
}

struct Recomputed final : torch::autograd::Function<Recomputed> {
  /// tracked  what the graph leads on to: inputs that require a gradient, or a stand-in
  /// outputs  all of them, also those that the graph does not see
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Held>& held,
                               at::TensorList /*tracked*/, const std::vector<at::Tensor>* inputs,
                               std::vector<at::Tensor>* outputs) {
    context->set_materialize_grads(false);
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    *outputs = first_run(*held, *inputs);
    context->save_for_backward(*inputs);
    variable_list with_gradient;
    // A tensor that fn only passes on must not become part of the graph itself.
    for (const size_t i : held->with_gradient) with_gradient.push_back((*outputs)[i].detach());
    return with_gradient;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
    require_plain_backward(engine);
    const auto held =
        c10::static_intrusive_pointer_cast<Held>(context->saved_data.at("held").toCapsule());
    variable_list inputs = context->get_saved_variables();
    for (at::Tensor& input : inputs) {
      if (input.defined()) input = input.detach().set_requires_grad(input.requires_grad());
    }

    torch::autograd::edge_list roots;
    variable_list seeds;
    {
      const uint64_t first_node = at::sequence_number::peek();
      const std::vector<at::Tensor> outputs = second_run(*held, inputs);
      for (size_t i = 0; i < gradients.size(); ++i) {
        const at::Tensor& output = outputs[held->with_gradient[i]];
        if (!gradients[i].defined() || !output.requires_grad()) continue;
        roots.push_back(torch::autograd::impl::gradient_edge(output));
        seeds.push_back(gradients[i]);
      }
      require_own_nodes(roots, first_node);
    }
    // The outputs are gone: the graph holds those that it needs.
    if (!roots.empty()) {
      engine.execute(roots, seeds, /*keep_graph=*/false, /*create_graph=*/false,
                     /*accumulate_grad=*/true);
    }

    variable_list of_arguments(1);  // none for `held`
    bool any = false;
    for (const at::Tensor& input : inputs) {
      if (!input.defined() || !input.requires_grad()) continue;
      of_arguments.push_back(input.grad());
      any = true;
    }
    if (!any) of_arguments.emplace_back();  // the stand-in's
    of_arguments.resize(of_arguments.size() + 2);
    return of_arguments;
  }
};

}  // namespace

bool recomputing() { return recomputing_here; }

std::vector<at::Tensor> checkpoint_list(TensorFunction fn, const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return fn(inputs);
  auto held = c10::make_intrusive<Held>();
  held->fn = std::move(fn);
  variable_list tracked;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) tracked.push_back(input);
  }
  // Without one the graph would end here, and fn's parameters would get no gradient.
  if (tracked.empty()) tracked.push_back(at::zeros({0}, at::kFloat).requires_grad_());
  std::vector<at::Tensor> outputs;
  variable_list with_gradient = Recomputed::apply(held, at::TensorList(tracked), &inputs, &outputs);
  for (size_t i = 0; i < with_gradient.size(); ++i) {
    outputs[held->with_gradient[i]] = std::move(with_gradient[i]);
  }
  return outputs;
}

}  // namespace lockstep::torch_inside
