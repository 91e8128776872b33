#include "lockstep/torch_inside/recompute.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/memory/counting_allocator.h"

namespace lockstep {
namespace {

using torch::nn::Dropout;
using torch::nn::GELU;
using torch::nn::Linear;
using torch::nn::Sequential;

using Tensors = std::vector<at::Tensor>;

/// What a function gives, and what backward through it leaves.
struct Outcome {
  Tensors outputs;
  Tensors gradients;  // of the inputs, then of the parameters; undefined where there is none
  at::Tensor drawn_next;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor left = a.detach().contiguous(), right = b.detach().contiguous();
  return left.numel() == 0 || std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

void expect_same(const Outcome& got, const Outcome& expected) {
  ASSERT_EQ(got.outputs.size(), expected.outputs.size());
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    EXPECT_TRUE(same_bits(got.outputs[i], expected.outputs[i])) << "output " << i;
  }
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    EXPECT_EQ(got.gradients[i].defined(), expected.gradients[i].defined()) << "gradient " << i;
    EXPECT_TRUE(same_bits(got.gradients[i], expected.gradients[i])) << "gradient " << i;
  }
  EXPECT_TRUE(same_bits(got.drawn_next, expected.drawn_next)) << "the generator stands elsewhere";
}

/// A loss to which every element of every output adds its own share.
at::Tensor loss_of(const Tensors& outputs) {
  at::Tensor loss = torch::zeros({}, torch::requires_grad());
  double share = 0.5;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.is_floating_point()) continue;
    share += 0.25;
    loss = loss + (output * torch::linspace(share, 1, output.numel()).view_as(output)).sum();
  }
  return loss;
}

/// Calls `forward`, which may use `inputs` and `parameters`, and goes backward.
Outcome run(const std::function<Tensors(const Tensors&)>& forward, const Tensors& inputs,
            const Tensors& parameters) {
  torch::manual_seed(5);
  Tensors fresh;
  for (const at::Tensor& input : inputs) {
    fresh.push_back(
        input.defined() ? input.detach().clone().set_requires_grad(input.requires_grad()) : input);
  }
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  Outcome outcome;
  outcome.outputs = forward(fresh);
  loss_of(outcome.outputs).backward();
  for (const Tensors* list : {&std::as_const(fresh), &parameters}) {
    for (const at::Tensor& leaf : *list) {
      outcome.gradients.push_back(leaf.defined() && leaf.grad().defined() ? leaf.grad().clone()
                                                                          : at::Tensor());
    }
  }
  outcome.drawn_next = torch::rand({3});
  return outcome;
}

/// The plain function against the checkpointed one: outputs, gradients and later draws.
template <class Fn>
void expect_exact(const Fn& fn, const Tensors& inputs, const Tensors& parameters = {}) {
  using Result = std::decay_t<decltype(fn(inputs))>;
  const auto parts_of = [](const Result& result) {
    Tensors list;
    torch_inside::Parts<Result>::take_apart(result, list);
    return list;
  };
  const Outcome plain = run([&](const Tensors& x) { return parts_of(fn(x)); }, inputs, parameters);
  int runs = 0;
  const auto counted = [&](const Tensors& x) {
    ++runs;
    return fn(x);
  };
  const Outcome again =
      run([&](const Tensors& x) { return parts_of(checkpoint(counted, x)); }, inputs, parameters);
  expect_same(again, plain);
  EXPECT_EQ(runs, 2);
}

Sequential mlp_with_dropout() {
  torch::manual_seed(1);
  return Sequential(Linear(6, 24), GELU(), Dropout(0.3), Linear(24, 6), Dropout(0.2));
}

at::Tensor input(at::IntArrayRef shape, bool with_gradient = true) {
  return torch::randn(shape).set_requires_grad(with_gradient);
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\ndoes not say: " << part;
}

TEST(Recompute, DropoutHasItsMaskAgain) {
  Sequential net = mlp_with_dropout();
  expect_exact([&](const Tensors& x) { return net->forward(x[0]); }, {input({5, 6})},
               net->parameters());
}

TEST(Recompute, EveryKindOfDraw) {
  expect_exact(
      [](const Tensors& x) {
        // randn of 16 or more and of fewer elements take other paths, and keep a spare number.
        return Tensors{x[0] * torch::randn({3}),
                       x[0] + torch::rand_like(x[0]),
                       x[0] * torch::randn({20})[7],
                       x[0][torch::randperm(3)[0].item<int64_t>()],
                       x[0] * torch::bernoulli(x[0].detach().sigmoid()),
                       x[0] * torch::randint(9, {3})};
      },
      {input({3})});
}

TEST(Recompute, LstmReturnsTuples) {
  torch::manual_seed(2);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 5).num_layers(2).dropout(0.25));
  expect_exact([&](const Tensors& x) { return lstm->forward(x[0], std::tuple(x[1], x[2])); },
               {input({7, 3, 4}), input({2, 3, 5}), input({2, 3, 5}, false)}, lstm->parameters());
}

TEST(Recompute, SeveralInputsAndOutputs) {
  const at::Tensor ids = torch::arange(4);
  expect_exact(
      [](const Tensors& x) {
        const at::Tensor product = x[0] * x[1];
        return Tensors{product + x[2], x[4].to(at::kFloat) * x[0], x[4] + 1, x[2].detach(),
                       at::Tensor(),   product.relu().sum()};
      },
      {input({4}), input({4}), input({4}, false), at::Tensor(), ids});
}

TEST(Recompute, ResultsKeepTheirShape) {
  const at::Tensor x = input({2}), y = input({3});
  const std::pair<at::Tensor, at::Tensor> pair = checkpoint(
      [](const at::Tensor& a, const at::Tensor& b) { return std::pair(a * 2, b * 3); }, x, y);
  EXPECT_TRUE(torch::equal(pair.first, x * 2) && torch::equal(pair.second, y * 3));
  const std::array<at::Tensor, 2> array = checkpoint(
      [](at::Tensor a) {
        return std::array{a + 1, a + 2};
      },
      x);
  EXPECT_TRUE(torch::equal(array[0], x + 1) && torch::equal(array[1], x + 2));
  const Tensors none = checkpoint([](const at::Tensor&) { return Tensors{}; }, x);
  EXPECT_TRUE(none.empty());
}

TEST(Recompute, TakesAModuleByValue) {
  Sequential net = mlp_with_dropout();
  net->eval();
  const at::Tensor x = input({2, 6});
  const auto forward = [net](const at::Tensor& t) mutable { return net->forward(t); };
  EXPECT_TRUE(torch::equal(checkpoint(forward, x), net->forward(x)));
  const auto of_list = [net](const Tensors& list) mutable { return net->forward(list[0]); };
  EXPECT_TRUE(torch::equal(checkpoint(of_list, Tensors{x}), net->forward(x)));
}

TEST(Recompute, AnInputUsedTwice) {
  expect_exact([](const Tensors& x) { return x[0].tanh() * x[1].exp() + x[0]; },
               {input({6}), input({6})});
  const at::Tensor x = input({6});
  checkpoint([](const at::Tensor& a, const at::Tensor& b) { return a.tanh() * b.exp(); }, x, x)
      .sum()
      .backward();
  const at::Tensor expected = x.detach().clone().requires_grad_();
  (expected.tanh() * expected.exp()).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), expected.grad()));
}

TEST(Recompute, NestedThreeDeep) {
  Sequential nets[] = {mlp_with_dropout(), mlp_with_dropout(), mlp_with_dropout()};
  Tensors parameters;
  for (auto& net : nets) {
    for (const at::Tensor& parameter : net->parameters()) parameters.push_back(parameter);
  }
  const auto nested = [&](bool inside) {
    return [&nets, inside](const Tensors& x) {
      const auto layer = [&nets](int depth) {
        return [&nets, depth](const at::Tensor& t) { return nets[depth]->forward(t); };
      };
      if (!inside) return layer(2)(layer(1)(layer(0)(x[0])));
      return checkpoint(
          [layer](const at::Tensor& t) {
            const auto two = [layer](const at::Tensor& u) {
              return checkpoint(layer(2), checkpoint(layer(1), u));
            };
            return checkpoint(two, layer(0)(t));
          },
          x[0]);
    };
  };
  const Tensors inputs = {input({5, 6})};
  const auto forward = [&](bool inside) {
    return run([&](const Tensors& x) { return Tensors{nested(inside)(x)}; }, inputs, parameters);
  };
  expect_same(forward(true), forward(false));
}

// LibTorch goes on in another thread below 60 backward calls inside each other.
TEST(Recompute, NestedEightyDeep) {
  const std::function<at::Tensor(const at::Tensor&, int)> chain = [&](const at::Tensor& x,
                                                                      int depth) -> at::Tensor {
    if (depth == 0) return torch::dropout(x, 0.2, true);
    return checkpoint([&chain, depth](const at::Tensor& t) { return chain(t.sin(), depth - 1); },
                      x);
  };
  expect_exact([&](const Tensors& x) { return chain(x[0], 80); }, {input({50})});
}

TEST(Recompute, WithoutGradientAmongTheInputsParametersLearn) {
  torch::manual_seed(1);
  torch::nn::Embedding table(9, 4);
  expect_exact([&](const Tensors& x) { return table->forward(x[0]).tanh(); },
               {torch::tensor({1, 3, 3, 8})}, table->parameters());
  Sequential net = mlp_with_dropout();
  expect_exact([&](const Tensors& x) { return net->forward(x[0]); }, {input({5, 6}, false)},
               net->parameters());
}

TEST(Recompute, WithoutGradModeItIsTheCall) {
  const at::Tensor x = torch::ones({3}).requires_grad_();
  const at::NoGradGuard guard;
  int runs = 0;
  const at::Tensor y = checkpoint(
      [&](at::Tensor t) {
        ++runs;
        return t.mul_(2);  // allowed: nobody runs it again
      },
      x);
  EXPECT_TRUE(y.is_same(x));
  EXPECT_EQ(runs, 1);
}

TEST(Recompute, PassesOnWhatItDidNotMake) {
  const at::Tensor weight = input({3}), plain = input({3}, false), x = input({3});
  const Tensors outputs = checkpoint(
      [&](const at::Tensor& t) {
        return Tensors{t, weight, plain, t.view({3, 1})};
      },
      x);
  EXPECT_TRUE(weight.is_leaf() && x.is_leaf());
  EXPECT_FALSE(plain.requires_grad());
  (outputs[0] + outputs[1] * 2 + outputs[2] + outputs[3].view({3}) * 4).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 5.0)));
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({3}, 2.0)));
  EXPECT_FALSE(plain.grad().defined());
}

TEST(Recompute, AnOutputMayBeChangedInPlace) {
  const at::Tensor x = input({3});
  at::Tensor y = checkpoint([](const at::Tensor& t) { return t.exp(); }, x);
  y.mul_(3);
  y.sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad(), 3 * x.detach().exp()));
}

TEST(Recompute, OnlyOutputsInUseGoBackward) {
  const at::Tensor x = input({3}), w = input({3});
  const Tensors outputs = checkpoint(
      [&](const at::Tensor& t) {
        return Tensors{t * 2, t * w, t.detach() * 5};
      },
      x);
  (outputs[0] + outputs[2]).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 2.0)));
  EXPECT_FALSE(w.grad().defined());
}

TEST(Recompute, TellsItsSecondRun) {
  std::vector<bool> told;
  const auto inner = [&](const at::Tensor& t) {
    told.push_back(torch_inside::recomputing());
    return t.sin();
  };
  const auto outer = [&](const at::Tensor& t) {
    told.push_back(torch_inside::recomputing());
    const at::Tensor y = checkpoint(inner, t.sin());
    EXPECT_EQ(torch_inside::recomputing(), told[told.size() - 2]);
    return y;
  };
  checkpoint(outer, input({2})).sum().backward();
  // forward: outer, inner; backward: outer again, inner's first run there, inner's second.
  EXPECT_EQ(told, (std::vector<bool>{false, false, true, false, true}));
  EXPECT_FALSE(torch_inside::recomputing());
}

TEST(Recompute, ErrorsComeOutAndLeaveNothingBehind) {
  const at::Tensor x = input({3});
  int runs = 0;
  const auto fails_in = [&](int run) {
    return [&runs, run](const at::Tensor& t) {
      if (++runs == run) throw std::out_of_range("the function's own");
      return torch::dropout(t, 0.5, true).exp();
    };
  };
  EXPECT_THROW(checkpoint(fails_in(1), x), std::out_of_range);
  runs = 0;
  const at::Tensor y = checkpoint(fails_in(2), x);
  EXPECT_THROW(y.sum().backward(), std::out_of_range);
  EXPECT_FALSE(torch_inside::recomputing());
  EXPECT_TRUE(at::GradMode::is_enabled());
  expect_exact([](const Tensors& t) { return torch::dropout(t[0], 0.5, true).exp(); }, {x});
}

TEST(Recompute, TwiceBackwardWhereTheGraphIsKept) {
  Sequential net = mlp_with_dropout();
  const at::Tensor x = input({5, 6});
  const auto forward = [&](const at::Tensor& t) { return net->forward(t); };
  torch::manual_seed(5);
  const at::Tensor plain = loss_of({forward(x)});
  plain.backward({}, /*retain_graph=*/true);
  plain.backward();
  const at::Tensor expected = x.grad().clone(),
                   expected_weight = net->parameters()[0].grad().clone();
  x.mutable_grad() = at::Tensor();
  net->zero_grad();
  for (at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();

  torch::manual_seed(5);
  const at::Tensor again = loss_of({checkpoint(forward, x)});
  again.backward({}, /*retain_graph=*/true);
  again.backward();
  EXPECT_TRUE(same_bits(x.grad(), expected));
  EXPECT_TRUE(same_bits(net->parameters()[0].grad(), expected_weight));
  EXPECT_THROW(again.backward(), c10::Error) << "the graph is gone";
}

TEST(Recompute, Autocast) {
  Sequential net = mlp_with_dropout();
  const at::Tensor x = input({5, 6});
  const auto with_autocast = [&](const auto& forward) {
    return run(
        [&](const Tensors& t) {
          at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
          at::autocast::set_cpu_enabled(true);
          const at::Tensor y = forward(t[0]);
          at::autocast::clear_cache();
          at::autocast::set_cpu_enabled(false);
          return Tensors{y};  // backward runs without autocast
        },
        {x}, net->parameters());
  };
  const auto forward = [&](const at::Tensor& t) { return net->forward(t); };
  const Outcome plain = with_autocast(forward);
  ASSERT_EQ(plain.outputs[0].scalar_type(), at::kBFloat16);
  expect_same(with_autocast([&](const at::Tensor& t) { return checkpoint(forward, t); }), plain);
  EXPECT_FALSE(at::autocast::is_cpu_enabled());
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

TEST(Recompute, RefusesWhatWouldGoWrong) {
  const at::Tensor x = input({3});
  const at::Tensor part_of_graph = x * 2;
  const at::Tensor captures = checkpoint([&](const at::Tensor& t) { return t * part_of_graph; }, x);
  expect_contains(refusal_of([&] { captures.sum().backward(); }), "Pass it as an input");

  expect_contains(refusal_of([&] {
                    checkpoint([](at::Tensor t) { return t.mul_(2).exp(); }, x.detach().clone());
                  }),
                  "changed an input in place");

  const at::Tensor y = checkpoint([](const at::Tensor& t) { return t.exp(); }, x);
  expect_contains(
      refusal_of([&] { y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true); }),
      "second derivatives");
  const at::Tensor z = checkpoint([](const at::Tensor& t) { return t.exp(); }, x);
  expect_contains(refusal_of([&] { torch::autograd::grad({z.sum()}, {x}); }), ".grad");

  int runs = 0;
  const Tensors fewer = checkpoint(
      [&](const at::Tensor& t) {
        return ++runs == 1 ? Tensors{t, t} : Tensors{t};
      },
      x);
  expect_contains(refusal_of([&] { fewer[0].sum().backward(); }), "other tensors");

  at::Tensor input = x * 1;
  const at::Tensor later = checkpoint([](const at::Tensor& t) { return t.exp(); }, input);
  input.mul_(2);
  EXPECT_THROW(later.sum().backward(), c10::Error) << "its input was changed since";
}

TEST(Recompute, FourThreadsEachWithItsOwn) {
  at::detail::getDefaultCPUGenerator();  // made by its first user
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([&wrong, thread] {
      for (int round = 0; round < 100; ++round) {
        const at::Tensor x = torch::ones({40}, torch::requires_grad());
        const at::Tensor y =
            checkpoint([](const at::Tensor& t) { return torch::dropout(t, 0.5, true); }, x);
        y.sum().backward();
        // The gradient is the mask that forward multiplied ones with.
        wrong[thread] += same_bits(x.grad(), y) ? 0 : 1;
        wrong[thread] += torch_inside::recomputing() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// Eight layers of a kept 4 F and D elements each: the peak is the inputs of eight and one layer.
TEST(Recompute, PeakFallsToOneLayer) {
  memory::install_counting_allocator();
  constexpr int64_t kRows = 512, kWidth = 64, kLayers = 8;
  torch::manual_seed(1);
  std::vector<Sequential> layers;
  for (int64_t i = 0; i < kLayers; ++i) {
    layers.emplace_back(Linear(kWidth, 4 * kWidth), torch::nn::Tanh(), Linear(4 * kWidth, kWidth));
  }
  const auto peak = [&](bool recompute) {
    at::Tensor y = input({kRows, kWidth});
    const int64_t before = memory::tensor_memory().current_bytes;
    memory::reset_peak();
    for (Sequential& layer : layers) {
      const auto forward = [&layer](const at::Tensor& t) { return layer->forward(t); };
      y = recompute ? checkpoint(forward, y) : forward(y);
    }
    y.sum().backward();
    return memory::tensor_memory().peak_bytes - before;
  };
  peak(false);  // parameters have their gradients from here on
  const int64_t plain = peak(false), recomputed = peak(true);
  const int64_t unit = kRows * kWidth * 4;
  EXPECT_GT(plain, kLayers * 5 * unit);
  // Outputs of eight layers; the layer at hand: tanh and two gradients of 4 units, and a few of 1.
  EXPECT_LT(recomputed, (kLayers + 3 * 4 + 4) * unit);
}

}  // namespace
}  // namespace lockstep
