// Plays sequences in exported machines: node play.mjs XSTATE < sequences.json > answers.json
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const xstate = await import(pathToFileURL(process.argv[2]).href);

let holds = {}; // of the step that is played

async function playAll({ machine, played }) {
  const form = await import(pathToFileURL(machine).href);
  const told = Object.fromEntries(form.conditions.map((name) => [name, () => holds[name] === true]));
  const host = { conditions: told, effect() {}, followUp() {}, ask() {} };
  const built = form.build(xstate, host);
  return played.map((each) => play(form, host, built, each));
}

function play(form, host, built, { context, steps }) {
  const clock = new xstate.SimulatedClock();
  const actor = xstate.createActor(built, { input: context, clock }).start();
  const answers = steps.map((step) => {
    holds = step.holds;
    return answer(form, host, actor, clock, step);
  });
  actor.stop();
  return answers;
}

function answer({ config, fire }, host, actor, clock, step) {
  const { kind, trigger, by, authority, at_version: version, granted } = step;
  let given;
  if (kind === "elapse") {
    clock.increment(1e12);
    const after = actor.getSnapshot();
    given = { ...after.context.answer, state: after.value };
  } else if (kind === "settle") {
    given = fire(actor, host, { type: granted ? "approval.granted" : "approval.refused", trigger, version });
  } else {
    given = fire(actor, host, { type: trigger, by, authority, data: {} });
  }
  return { ...given, timer: runningTimer(config, actor) };
}

// The trigger of the deadline that XState has scheduled.
function runningTimer(config, actor) {
  const scheduled = Object.values(actor.system.getSnapshot()._scheduledEvents);
  if (scheduled.length === 0) return null;
  const [after] = Object.values(config.states[actor.getSnapshot().value].after);
  return after.actions[0].params.trigger;
}

const answers = await Promise.all(JSON.parse(readFileSync(0, "utf8")).map(playAll));
process.stdout.write(JSON.stringify(answers.flat()));
