# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
import re
from typing import Any, ClassVar, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.chat.fallback import FallbackConfig
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.core.reasoning.queue import QueueConfig
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.node_base import ManagedNode
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
import pytest
from rcl_interfaces.srv import DescribeParameters
from rclpy.parameter import Parameter

from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, is_untuned
from test.nodes.test_config_files import NODES

if TYPE_CHECKING:
    from test.nodes.graph import Graph


@dataclass(frozen=True)
class Plain(Settings):
    name: str = setting('camera', 'its name', read_only=True)
    mode: str = setting('auto', 'how', choices=('auto', 'never'))
    topics: tuple[str, ...] = setting(('a',), 'which')


@dataclass(frozen=True)
class Nested(Settings):
    share: float = setting(0.5, 'a share [1]', between=(0, 1))
    count: int = setting(3, 'how many', between=(1, 10))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count * self.share > 8:
            msg = f'count * share is {self.count * self.share}: expected at most 8'
            raise ConfigError(msg)


class Example(ManagedNode):
    groups: ClassVar = {Plain: '', Nested: 'nested'}

    def __init__(self, **options: Any) -> None:
        super().__init__('example', **options)
        self.seen: list[Nested] = []

    def reconfigure(self) -> None:
        self.seen.append(self.parameters.config(Nested))


def test_values_fill_the_dataclasses(graph: Graph) -> None:
    node = graph.add(Example, name='front', nested__share=0.25, topics=['b', 'c'])
    assert node.parameters.config(Plain) == Plain('front', 'auto', ('b', 'c'))
    assert node.parameters.config(Nested) == Nested(0.25, 3)


def test_old_names_of_groups_are_read_with_a_warning(graph: Graph) -> None:
    node = graph.add(SpatialReasoner, ladder__start='any', desk__in_line=2, queue__at_once=3)
    assert node.parameters.config(FallbackConfig).start == 'any'
    assert node.parameters.config(QueueConfig) == QueueConfig(at_once=3, in_line=2)
    assert node.get_parameter('fallback.start').value == 'any'
    assert "'ladder.start' is called 'fallback.start' now" in ' '.join(node.parameters.warnings)


def test_whole_number_serves_as_a_float(graph: Graph) -> None:
    node = graph.add(Example, nested__share=1)
    assert node.parameters.config(Nested).share == 1.0


def test_descriptors_explain(graph: Graph) -> None:
    graph.add(Example)
    request = DescribeParameters.Request(names=['nested.share', 'mode', 'name', 'nested.count'])
    share, mode, name, count = graph.call(
        DescribeParameters, '/example/describe_parameters', request
    ).descriptors
    assert share.description == 'a share [1]'
    assert (share.floating_point_range[0].from_value, share.floating_point_range[0].to_value) == (
        0.0,
        1.0,
    )
    assert count.integer_range[0].to_value == 10
    assert mode.additional_constraints == 'one of: auto, never'
    assert name.additional_constraints == 'takes effect at configure'


@pytest.mark.parametrize(
    ('parameters', 'message'),
    [
        ({'nested__share': 1.5}, r'nested\.share is 1\.5: expected 0 to 1'),
        ({'mode': 'often'}, r"mode is 'often': expected one of auto, never"),
        ({'nested__count': 'many'}, r"nested\.count is 'many': expected a value of type int"),
        ({'nested__count': 10, 'nested__share': 1.0}, r'nested\.count \* share is 10'),
    ],
)
def test_bad_value_at_start_stops_the_configuration(
    graph: Graph, capfd: pytest.CaptureFixture[str], parameters: dict[str, Any], message: str
) -> None:
    node = graph.add(Example, **parameters)
    assert not graph.try_change(node, CONFIGURE)
    assert re.search(f'not configured: parameter {message}', capfd.readouterr().err)


def test_bad_value_at_start_can_be_mended(graph: Graph) -> None:
    node = graph.add(Example, nested__share=1.5)
    assert graph.parameter(node, 'nested.share', 0.75).successful
    graph.change(node, CONFIGURE)
    assert node.parameters.config(Nested).share == 0.75


def test_mending_one_value_keeps_the_others_that_were_given(graph: Graph) -> None:
    node = graph.add(Example, nested__share=1.5, nested__count=7)
    refused = graph.parameter(node, 'nested.count', 8)
    assert refused.reason.startswith('share is 1.5: expected 0 to 1')
    assert graph.parameter(node, 'nested.share', 0.75).successful
    graph.change(node, CONFIGURE)
    assert node.parameters.config(Nested) == Nested(0.75, 7)
    assert node.get_parameter('nested.count').value == 7


@pytest.mark.parametrize('value', [['a', 'b', 'c'], [True, False, True], 'abc', [1.0, 2.0]])
def test_array_of_another_type_is_refused_with_a_reply(graph: Graph, value: Any) -> None:
    node = graph.add(KeyframeExtractorNode)
    result = graph.parameter(node, 'mount_xyz', value)
    assert not result.successful
    assert result.reason.startswith('mount_xyz is ')
    assert graph.parameter(node, 'mount_xyz', [1, 2, 3]).successful


def test_change_reaches_the_node_as_a_whole(graph: Graph) -> None:
    node = graph.active(Example)
    assert graph.parameter(node, 'nested.count', 7).successful
    assert node.seen == [Nested(0.5, 7)]


def test_refused_change_gives_the_reason_of_the_dataclass(graph: Graph) -> None:
    node = graph.active(Example, nested__share=1.0)
    result = graph.parameter(node, 'nested.count', 9)
    assert not result.successful
    assert result.reason == 'count * share is 9.0: expected at most 8'
    assert node.get_parameter('nested.count').value == 3
    assert node.seen == []


def test_change_that_the_node_cannot_take_up_is_refused_and_undone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = graph.active(Example)

    def fail() -> None:
        raise OSError(28, 'no room')

    monkeypatch.setattr(node, 'reconfigure', fail)
    result = graph.parameter(node, 'nested.count', 7)
    assert (result.successful, result.reason) == (False, 'not taken up: [Errno 28] no room')
    assert node.parameters.config(Nested).count == 3
    assert node.get_parameter('nested.count').value == 3


def test_read_only_holds_while_configured(graph: Graph) -> None:
    node = graph.active(Example)
    result = graph.parameter(node, 'name', 'rear')
    assert not result.successful
    assert result.reason == 'name takes effect at configure: deactivate, cleanup, set, configure'
    graph.change(node, DEACTIVATE, CLEANUP)
    assert graph.parameter(node, 'name', 'rear').successful
    graph.change(node, CONFIGURE, ACTIVATE)
    assert node.parameters.config(Plain).name == 'rear'


@pytest.mark.parametrize('make', [SemanticPerceiver, SpatialReasoner])
def test_configured_node_refuses_what_it_would_not_heed(
    graph: Graph, make: type[ManagedNode]
) -> None:
    node = graph.add(make)
    node.configure = lambda: None  # type: ignore[method-assign]
    graph.change(node, CONFIGURE)
    said = node.parameters.values()
    at_configure = {'chat', 'vlm', 'classical', 'worker', 'profile', 'secondary', 'fallback'}
    fixed = [n for n in said if n.split('.')[0] in at_configure and not is_untuned(n)]
    assert len(fixed) >= 4
    for name in fixed:
        result = graph.parameter(node, name, said[name])
        assert result.reason.startswith(f'{name} takes effect at configure: deactivate')
    assert node.parameters.values() == said


def test_name_that_a_group_does_not_have_is_noticed(graph: Graph) -> None:
    node = graph.add(Example, nested__budget=5, nestedly__budget=5)
    assert node.parameters.warnings == [
        "parameter 'nested.budget' is not used: known: nested.count, nested.share"
    ]


def test_a_setting_that_nobody_tunes_is_no_parameter_and_who_gives_it_is_told(
    graph: Graph,
) -> None:
    node = graph.add(SpatialReasoner)
    given = {'reasoner.top_p': 0.5, 'map_save_s': 1.0}
    assert not any(map(node.has_parameter, given))
    told = SpatialReasoner(
        context=graph.context,
        parameter_overrides=[Parameter(name, value=value) for name, value in given.items()],
    )
    graph.nodes.append(told)
    assert told.parameters.warnings == [
        "parameter 'map_save_s' is not used: it is always 30.0 now, leave it out",
        "parameter 'reasoner.top_p' is not used: give top_p in a model profile, or leave it out",
    ]
    assert told.parameters.values()['reasoner.top_p'] == 1.0
    told.parameters.suggest(ReasonerConfig, {'top_p': 0.9, 'token_budget': 700})
    config = told.parameters.config(ReasonerConfig)
    assert (config.top_p, config.token_budget) == (0.9, 700)
    told.parameters.suggest(ReasonerConfig, {})
    assert told.parameters.config(ReasonerConfig).top_p == 1.0


def test_the_nodes_have_at_most_119_parameters_beside_those_of_the_start(graph: Graph) -> None:
    nodes = [graph.add(make) for make in NODES.values()]
    names = [name for node in nodes for name in node.parameters._owners]
    assert sum(name not in {'autostart', 'autostart_retry_s'} for name in names) <= 119


def test_misspelt_name_is_noticed(graph: Graph) -> None:
    node = graph.add(Example, nested__shar=0.1, other_node__setting=1)
    assert node.parameters.warnings == [
        "parameter 'nested.shar' is not used: did you mean 'nested.share'?"
    ]


def test_suggestion_gives_way_to_what_was_chosen(graph: Graph) -> None:
    node = graph.add(Example, nested__share=0.25)
    node.parameters.suggest(Nested, {'share': 0.75, 'count': 5})
    assert node.parameters.config(Nested) == Nested(0.25, 5)
    assert node.get_parameter('nested.count').value == 5
    assert graph.parameter(node, 'nested.count', 7).successful
    node.parameters.suggest(Nested, {'count': 6})
    assert node.parameters.config(Nested) == Nested(0.25, 7)


def test_suggestion_that_is_left_out_is_the_default_again(graph: Graph) -> None:
    node = graph.add(Example)
    node.parameters.suggest(Nested, {'count': 5})
    node.parameters.suggest(Nested, {})
    assert node.parameters.config(Nested) == Nested()


def test_suggestion_that_is_not_allowed_is_refused(graph: Graph) -> None:
    node = graph.add(Example)
    with pytest.raises(ConfigError, match='count'):
        node.parameters.suggest(Nested, {'count': 50})
    assert node.parameters.config(Nested) == Nested()
