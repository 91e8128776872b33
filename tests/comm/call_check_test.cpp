// Wrong arguments are refused before any byte is sent, with a message that says what to do.
#include "lockstep/base/error.h"
#include "tests/comm/on_ranks.h"

namespace lockstep {
namespace {

using test::message_of;
using test::on_ranks;

template <class Call>
void expect_refused(Call call, const std::string& part) {
  const std::string message = message_of<UsageError>([&] { static_cast<void>(call()); });
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(CallCheck, TheMessageSaysWhereWhatAndWhatToDo) {
  net::run_on_threads(
      4,
      [](const std::shared_ptr<net::Group>& world) {
        ProcessGroup all(world);
        const auto dp = all.subgroup({3, 2, 1, 0}, "dp");
        const std::string message = message_of<UsageError>(
            [&] { static_cast<void>(dp->reduce_scatter(at::zeros({1002}), at::zeros({250}))); });
        EXPECT_EQ(message, base::str("[rank ", all.rank(), " of 4 | dp ", 3 - all.rank(),
                                     "] reduce_scatter on \"dp\": 1002 elements do not divide by 4 "
                                     "ranks.\n  Pad `in` to 1004 and `out` to 251, or call "
                                     "reduce_scatter_uneven."));
        const std::string of_world =
            message_of<UsageError>([&] { static_cast<void>(all.broadcast(at::zeros({2}), 4)); });
        EXPECT_EQ(of_world,
                  base::str("[rank ", all.rank(),
                            " of 4] broadcast on \"world\": `root` is rank 4, but the group's "
                            "ranks are 0 to 3.\n  Ranks are places in this group, not in the "
                            "world."));
      },
      test::options());
}

TEST(CallCheck, TensorsThatCannotTravel) {
  on_ranks({2}, [](ProcessGroup& group) {
    const at::Tensor x = at::zeros({4, 6});
    expect_refused([&] { return group.all_reduce(x.t()); }, "strides [1, 6] is not contiguous");
    expect_refused([&] { return group.all_reduce(at::Tensor()); }, "undefined");
    expect_refused([&] { return group.all_reduce(x.to_sparse()); }, "sparse");
    expect_refused([&] { return group.all_reduce(x.to(at::kComplexFloat)); }, "ComplexFloat");
    expect_refused([&] { return group.all_reduce(at::zeros({3}, at::kBool)); }, "ReduceOp::max");
    expect_refused([&] { return group.all_reduce(at::empty({3}, at::device(at::kMeta))); }, "meta");
    at::Tensor released = at::zeros({3});
    released.storage().unsafeGetStorageImpl()->set_data_ptr_noswap({nullptr, at::kCPU});
    expect_refused([&] { return group.all_reduce(released); }, "storage was released");
  });
}

TEST(CallCheck, SizesTypesAndRanks) {
  on_ranks({2}, [](ProcessGroup& group) {
    const at::Tensor four = at::zeros({4}), two = at::zeros({2}), three = at::zeros({3});
    const int me = group.rank();
    expect_refused([&] { return group.reduce_scatter(four, three); }, "2 for each of 2 ranks");
    expect_refused([&] { return group.reduce_scatter(four, two.to(at::kLong)); }, "Long");
    expect_refused([&] { return group.reduce_scatter(four, four.narrow(0, 0, 2)); }, "overlap");
    expect_refused([&] { return group.reduce_scatter_uneven(four, two, {4}); }, "1 entries");
    expect_refused([&] { return group.reduce_scatter_uneven(four, two, {2, 3}); }, "adds up to 5");
    expect_refused(
        [&] {
          return group.reduce_scatter_uneven(four, three, {2, 2});
        },
        "count is 2 elements, but `out` has 3");
    expect_refused([&] { return group.reduce_scatter_uneven(four, two, {5, -1}); }, "negative");
    expect_refused([&] { return group.all_gather(three, four); }, "2 for each of 2 ranks");
    // The other rank's part of `out`.
    expect_refused([&] { return group.all_gather(four.narrow(0, 2 * (1 - me), 2), four); },
                   "overlap");
    expect_refused([&] { return group.all_gather_uneven(two, four, {2, 1}); }, "adds up to 3");
    expect_refused([&] { return group.broadcast(two, -1); }, "`root` is rank -1");
    expect_refused([&] { return group.send(two, 2); }, "`to` is rank 2");
    expect_refused([&] { return group.recv(two, me); }, "this rank itself");
    expect_refused([&] { return group.all_to_all(four, {2, 2}, three, {2, 2}); }, "recv_counts");
    expect_refused([&] { return group.all_to_all(four, {2, 2}, four, {2, 2}); }, "overlap");
    expect_refused([&] { return group.allocate({2, -3}); }, "negative dim");
    expect_refused([&] { return group.allocate({2}, at::kComplexFloat); }, "ComplexFloat");
    EXPECT_EQ(group.totals().bytes, 0) << "something was sent";
    group.barrier();  // and both ranks still talk
  });
}

TEST(CallCheck, LeafTerms) {
  on_ranks({2}, [](ProcessGroup& group) {
    using Terms = std::vector<LeafTerm>;
    const at::Tensor x = at::zeros({4}), y = at::zeros({4});
    expect_refused([&] { return group.all_reduce(Terms{{{0, 1}, x}}, 0, y); }, "0 leaves");
    expect_refused(
        [&] {
          return group.all_reduce(Terms{{{0, 1}, x}}, 4, y.to(at::kHalf));
        },
        "float32 or float64");
    expect_refused(
        [&] {
          return group.all_reduce(Terms{{{0, 1}, x.to(at::kDouble)}}, 4, y);
        },
        "holds 4 elements of Double; 4 of Float");
    expect_refused(
        [&] {
          return group.all_reduce(Terms{{{0, 1}, at::zeros({5})}}, 4, y);
        },
        "holds 5 elements");
    expect_refused(
        [&] {
          return group.all_reduce(Terms{{{1, 3}, x}}, 4, y);
        },
        "maximal_subtrees(4");
    expect_refused(
        [&] {
          return group.all_reduce(Terms{{{0, 2}, x}, {{1, 2}, y}}, 4, y);
        },
        "overlap");
    expect_refused([&] { return group.all_reduce(Terms{{{3, 5}, x}}, 4, y); }, "[3,5)");
    const at::Tensor wide = at::zeros({6});
    expect_refused(
        [&] {
          return group.all_reduce(Terms{{{0, 1}, wide.narrow(0, 1, 4)}}, 4, wide.narrow(0, 0, 4));
        },
        "overlaps the result in part");
    expect_refused(
        [&] {
          return group.reduce_scatter_uneven(Terms{{{0, 1}, x}}, 4, y, {2, 3});
        },
        "5 of Float were expected");
  });
}

}  // namespace
}  // namespace lockstep
