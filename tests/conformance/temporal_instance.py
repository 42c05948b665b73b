"""One workflow of the Temporal form, run by the SDK's own workflow instance, activation by activation.

There is no Temporal server here. What a server and the SDK's core would send is sent by this class: an update, a timer
that fires, the answer of an activity, the end of a child workflow. What comes back are the commands of the workflow.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payloads
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.converter import DefaultFailureConverter, DefaultPayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker._workflow_instance import WorkflowInstance, WorkflowInstanceDetails

from interlock.workflows.forms.temporal_values import FactsFound, TemporalFiring, TemporalStart

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Commands = list[Any]
CONVERTER, FAILURES = DefaultPayloadConverter(), DefaultFailureConverter()


class TemporalInstanceRun:
    """A workflow that runs. Every method is called from one thread, which has no event loop of its own.

    Attributes:
        facts: answers the activity `facts` during the next step.
        timer: the sequence number of the timer that runs; None: there is none.
        children: the id of each child workflow that runs -> its sequence number.
        ended: whether the workflow has ended.
        told: the id of a linked workflow, and the trigger that it was told, in their order.
        is_long: the server finds that its history is long; set by a test.
        continued: the input of the new run that it asked for then.
    """

    def __init__(
        self,
        type_: type,
        start: TemporalStart,
        facts: Callable[[], FactsFound],
        effects: Callable[[str, Any], Any] = lambda name, wanted: None,
        runner: WorkflowRunner | None = None,
    ) -> None:
        """Start a workflow.

        Args:
            type_: its class.
            start: its input.
            facts: answers the activity `facts`.
            effects: carries an effect out, given its name and its `EffectWanted`; what it raises, Temporal gives up on.
            runner: default: without the sandbox.
        """
        self.facts = facts
        self._effects = effects
        self.told: list[tuple[str, Any]] = []
        self.is_long = False
        self.continued: TemporalStart | None = None
        self._log: list[tuple[WorkflowActivation, WorkflowActivationCompletion]] = []
        self.timer: int | None = None
        self.children: dict[str, int] = {}
        self.ended = False
        self._updates = 0
        self._now = BEGAN
        self._type = type_
        self._instance = asyncio.run(_instance(type_, runner or UnsandboxedWorkflowRunner()))
        activation = self._activation()
        job = activation.jobs.add().initialize_workflow
        job.workflow_id, job.workflow_type, job.randomness_seed = "instance", "machine", 1
        job.arguments.extend(CONVERTER.to_payloads([start]))
        self._carry_on(activation)

    def update(self, firing: TemporalFiring) -> tuple[bool, Mapping[str, Any]]:
        """Send the update `fire`; returns whether it was refused, and its answer or the refusal."""
        self._updates += 1
        activation = self._activation()
        job = activation.jobs.add().do_update
        job.id = job.protocol_instance_id = str(self._updates)
        job.name, job.run_validator = "fire", True
        job.input.extend(CONVERTER.to_payloads([firing]))
        for command in self._carry_on(activation):
            response = command.update_response
            if command.HasField("update_response") and response.HasField("rejected"):
                failure = FAILURES.from_failure(response.rejected, CONVERTER)
                assert isinstance(failure, ApplicationError), failure
                return True, failure.details[0]
            if command.HasField("update_response") and response.HasField("completed"):
                return False, CONVERTER.from_payloads([response.completed])[0]
        raise AssertionError("the update was not answered")

    def elapse(self) -> None:
        """Let the timer fire that runs."""
        assert self.timer is not None
        activation = self._activation()
        activation.jobs.add().fire_timer.seq = self.timer
        self.timer = None
        self._carry_on(activation)

    def end_child(self, child: str, settled: str) -> None:
        """Let an approval end."""
        activation = self._activation()
        job = activation.jobs.add().resolve_child_workflow_execution
        job.seq = self.children.pop(child)
        job.result.completed.result.CopyFrom(CONVERTER.to_payloads([{"settled": settled}])[0])
        self._carry_on(activation)

    def show(self) -> Mapping[str, Any]:
        """The answer of the query `show`."""
        return self._answer("show")

    def history(self) -> Mapping[str, Any]:
        """The answer of the query `history`."""
        return self._answer("history")

    def _answer(self, query: str) -> Mapping[str, Any]:
        activation = self._activation()
        job = activation.jobs.add().query_workflow
        job.query_id, job.query_type = "1", query
        (command,) = self._activate(activation)
        answer: Mapping[str, Any] = CONVERTER.from_payloads([command.respond_to_query.succeeded.response])[0]
        return answer

    def replays_alike(self) -> bool:
        """Whether another instance, sent the same activations, gives the same commands: what Temporal relies on."""
        again = asyncio.run(_instance(self._type, UnsandboxedWorkflowRunner()))
        alike = all(again.activate(activation) == completion for activation, completion in self._log)
        again.activate(_removal(self._activation()))
        return alike

    def remove(self) -> None:
        """Take it out of the cache, as a worker does that needs the room."""
        self._instance.activate(_removal(self._activation()))

    def _carry_out(self, command: Any, result: Any) -> None:
        try:
            answer = self._effects(command.activity_type, CONVERTER.from_payloads(command.arguments)[0])
            result.completed.result.CopyFrom(CONVERTER.to_payloads([answer])[0])
        except ArithmeticError as error:
            failure = result.failed.failure
            failure.message = "Activity task failed"
            failure.activity_failure_info.activity_type.name = command.activity_type
            FAILURES.to_failure(error, CONVERTER, failure.cause)

    def _activation(self) -> WorkflowActivation:
        self._now += timedelta(seconds=1)
        activation = WorkflowActivation(run_id="run", history_length=1)
        activation.timestamp.FromDatetime(self._now)
        return activation

    def _carry_on(self, activation: WorkflowActivation) -> Commands:
        """Activate it, and answer what it asks for, until it waits; returns all its commands."""
        commands = self._activate(activation)
        done = list(commands)
        while answers := self._answers(commands):
            commands = self._activate(answers)
            done += commands
        return done

    def _activate(self, activation: WorkflowActivation) -> Commands:
        activation.continue_as_new_suggested = self.is_long
        completion: WorkflowActivationCompletion = self._instance.activate(activation)
        assert completion.HasField("successful"), completion.failed
        self._log.append((activation, completion))
        return list(completion.successful.commands)

    def _answers(self, commands: Commands) -> WorkflowActivation | None:
        activation = self._activation()
        for command in commands:
            if command.HasField("start_timer"):
                self.timer = command.start_timer.seq
            elif command.HasField("cancel_timer") and command.cancel_timer.seq == self.timer:
                self.timer = None
            elif command.HasField("complete_workflow_execution"):
                self.ended = True
            elif command.HasField("continue_as_new_workflow_execution"):
                arguments = command.continue_as_new_workflow_execution.arguments
                (self.continued,) = CONVERTER.from_payloads(arguments, [TemporalStart])
                self.ended = True
            elif command.HasField("schedule_activity") and command.schedule_activity.activity_type == "facts":
                job = activation.jobs.add().resolve_activity
                job.seq = command.schedule_activity.seq
                job.result.completed.result.CopyFrom(CONVERTER.to_payloads([self.facts()])[0])
            elif command.HasField("schedule_activity"):  # an effect
                job = activation.jobs.add().resolve_activity
                job.seq = command.schedule_activity.seq
                self._carry_out(command.schedule_activity, job.result)
            elif command.HasField("signal_external_workflow_execution"):
                told = command.signal_external_workflow_execution
                self.told.append(_signalled(told))
                activation.jobs.add().resolve_signal_external_workflow.seq = told.seq
            elif command.HasField("start_child_workflow_execution"):
                child = command.start_child_workflow_execution
                self.children[child.workflow_id] = child.seq
                job = activation.jobs.add().resolve_child_workflow_execution_start
                job.seq, job.succeeded.run_id = child.seq, "child"
        return activation if activation.jobs else None


def _removal(activation: WorkflowActivation) -> WorkflowActivation:
    activation.jobs.add().remove_from_cache.message = "over"
    return activation


def _signalled(command: Any) -> tuple[str, Any]:
    (firing,) = CONVERTER.from_payloads(command.args)
    return command.workflow_execution.workflow_id, firing


async def _instance(type_: type, runner: WorkflowRunner) -> WorkflowInstance:
    """A workflow instance; a worker makes it in its event loop, and activates it in a thread that has none."""
    defn = workflow._Definition.must_from_class(type_)
    info = workflow.Info(
        attempt=1,
        continued_run_id=None,
        cron_schedule=None,
        execution_timeout=None,
        first_execution_run_id="run",
        headers={},
        namespace="default",
        original_execution_run_id="run",
        parent=None,
        root=None,
        priority=Priority.default,
        raw_memo={},
        retry_policy=None,
        run_id="run",
        run_timeout=None,
        search_attributes={},
        start_time=BEGAN,
        task_queue="queue",
        task_timeout=timedelta(seconds=10),
        typed_search_attributes=TypedSearchAttributes.empty,
        workflow_id="instance",
        workflow_start_time=BEGAN,
        workflow_type=defn.name or "",
    )
    runner.prepare_workflow(defn)
    return runner.create_instance(
        WorkflowInstanceDetails(
            payload_converter_factory=DefaultPayloadConverter,
            failure_converter_class=DefaultFailureConverter,
            interceptor_classes=[],
            defn=defn,
            info=info,
            randomness_seed=1,
            extern_functions={},
            disable_eager_activity_execution=True,
            worker_level_failure_exception_types=[],
            patch_activation_callback=None,
            last_completion_result=Payloads(),
            last_failure=None,
        )
    )
