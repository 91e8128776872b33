#include "lockstep/plan/param_table_json.h"

#include "lockstep/base/error.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

using Json = nlohmann::json;

void expect_equal(const Param& back, const Param& param) {
  EXPECT_EQ(back.name, param.name);
  EXPECT_EQ(back.shape, param.shape);
  EXPECT_EQ(back.numel, param.numel);
  EXPECT_EQ(back.trainable, param.trainable);
  EXPECT_EQ(back.decay, param.decay);
  EXPECT_EQ(back.init, param.init);
  EXPECT_EQ(back.uses, param.uses);
  EXPECT_EQ(back.elsewhere, param.elsewhere);
  EXPECT_EQ(back.slice, param.slice);
  EXPECT_EQ(back.use_chunks, param.use_chunks);
  EXPECT_EQ(back.is_across, param.is_across);
  EXPECT_EQ(back.unit, param.unit);
}

ParamTable a_part_of_a_model() {
  const TensorSlice grain{
      .logical = "wte", .shape = {61, 8}, .dim = 0, .blocks = {64}, .grain = 1, .grains = 2};
  return make_param_table(
      {{.name = "wte.g1",
        .shape = {32, 8},
        .init = {Init::Kind::normal, 0.1 + 0.2},
        .slice = grain,
        .chunk = 0},
       {.name = "norm", .shape = {8}, .init = {Init::Kind::ones, 0}, .chunk = 1},
       {.name = "frozen", .shape = {}, .trainable = false, .init = {}},
       {.name = "none", .shape = {0, 4}, .init = {}, .chunk = 1}},
      {{"head.g1", "wte.g1"}}, /*is_part=*/true);
}

TEST(ParamTableJson, EveryFieldComesBack) {
  const ParamTable table = a_part_of_a_model();
  ASSERT_TRUE(table.params[0].is_across) << "the part is too plain for this test";
  // As text: what travels between ranks and lies in files.
  const ParamTable back = param_table_from_json(Json::parse(to_json(table).dump()));
  EXPECT_EQ(back.by_name, table.by_name);
  ASSERT_EQ(back.params.size(), table.params.size());
  for (size_t p = 0; p < table.params.size(); ++p) {
    SCOPED_TRACE(table.params[p].name);
    expect_equal(back.params[p], table.params[p]);
  }
}

TEST(ParamTableJson, DecayThatIsNotTheShapesComesBack) {
  ParamTable table = make_param_table({{.name = "w", .shape = {2, 2}, .init = {}}}, {});
  table.params[0].decay = false;
  EXPECT_FALSE(param_table_from_json(to_json(table)).params[0].decay);
}

std::string refusal(const Json& json) {
  try {
    param_table_from_json(json);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParamTableJson, RefusesWhatIsNoTable) {
  EXPECT_NE(refusal(Json::object()).find("a table is a list"), std::string::npos);
  const Json good = to_json(a_part_of_a_model());
  EXPECT_EQ(refusal(good), "accepted");
  const auto with = [&](const std::string& path, const Json& value) {
    Json changed = good;
    changed[0][Json::json_pointer(path)] = value;
    return refusal(changed);
  };
  for (const auto& [path, value, words] : std::vector<std::tuple<std::string, Json, std::string>>{
           {"/name", 3, "must be string"},
           {"/name", "norm", "its name came before"},
           {"/shape", {-1, 8}, "no count of elements"},
           {"/shape", {int64_t{1} << 40, int64_t{1} << 40}, "no count of elements"},
           {"/init", {"gamma", 1}, "\"init\" is"},
           {"/use_chunks", Json::array(), "\"use_chunks\" is empty"},
           {"/slice/dim", 2, "\"slice\" does not give"},
           {"/slice/grains", 0, "\"slice\" does not give"},
           {"/slice/grain", 2, "\"slice\" does not give"},
           {"/slice/blocks", {62}, "\"slice\" does not give"},
           {"/slice/blocks", Json::array(), "\"slice\" does not give"},
           {"/slice/shape", {65, 8}, "\"slice\" does not give"},
           {"/slice/shape", {61}, "\"slice\" does not give"}}) {
    EXPECT_NE(with(path, value).find(words), std::string::npos)
        << path << " " << value << ": " << with(path, value);
  }
}

}  // namespace
}  // namespace lockstep::plan
