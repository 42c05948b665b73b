// __TYPE__ __VERSION__: __SUMMARY__
// Made by `interlock definitions export __TYPE__@__VERSION__ --format xstate`, for XState 5.
//
//   import * as xstate from "xstate";
//   import { build, fire } from "./__FILE__";
//   const host = { conditions: { a_condition: ({ context, event }) => true }, effect() {}, followUp() {}, ask() {} };
//   const actor = xstate.createActor(build(xstate, host), { input: { quorum: 2 } }).start();
//   fire(actor, host, { type: "a_trigger", by: "ann", authority: "anyone", data: {} });
//
// The host proves who fires a trigger and by what authority, says which conditions hold, and carries out the effects,
// the triggers for linked instances (followUp) and the requests for an approval (ask). It tells an approval's decision by
// {type: "approval.granted" or "approval.refused", trigger, version}, with the trigger and version that `ask` was given.

// The names of the conditions that the host gives.
export const conditions = __CONDITIONS__;

// Trigger -> the authorities that may fire it.
export const authorities = __AUTHORITIES__;

// How long an instance may stay in a state; its context may say otherwise, in seconds, under `key`.
export const deadlines = __DEADLINES__;

// The machine, as XState reads it. Of a trigger's transitions the first whose guard holds is taken; the last refuses.
export const config = __CONFIG__;

const isOpen = (event, by) => by.includes("anyone") || by.includes(event.authority);
const isOf = (held, { trigger, version }) => held.trigger === trigger && held.version === version;
const legal = (state) => Object.keys(config.states[state].on ?? {}).filter((each) => each in authorities);

function lacking(host, context, event, names) {
  return names.filter((name) => host.conditions[name]({ context, event }) !== true);
}

// Why an event is not taken in a state.
function refusal(host, context, event, state) {
  const rejected = (code, missing = []) => ({ status: "rejected", code, missing, legal: legal(state) });
  if (event.type === "approval.refused") return rejected("approval");
  if (event.type === "approval.granted") {
    const held = context.held.find((each) => isOf(each, event));
    if (held?.version !== context.version) return { status: "superseded", code: "superseded" };
    return refusal(host, context, held.event, state);
  }
  if (!(event.type in authorities)) return rejected("unknown_trigger");
  if (!isOpen(event, authorities[event.type])) return rejected("not_yours");
  const candidates = (config.states[state].on?.[event.type] ?? []).filter((each) => each.guard);
  if (candidates.length === 0) return rejected("no_such_transition");
  const missing = candidates.map((each) => lacking(host, context, event, each.guard.params.conditions));
  return rejected("guard", missing.reduce((least, each) => (each.length < least.length ? each : least)));
}

// The machine for `createActor`. `xstate` is the module of that name.
export function build(xstate, host) {
  const absent = conditions.filter((name) => typeof host.conditions?.[name] !== "function");
  if (absent.length) throw new Error(`the host must give the conditions ${absent.join(", ")}`);
  const { assign, enqueueActions, raise, setup } = xstate;
  return setup({
    guards: {
      may: ({ context, event }, { by, conditions }) =>
        isOpen(event, by) && lacking(host, context, event, conditions).length === 0,
      is_granted: ({ context, event }, { trigger, conditions }) => {
        const held = context.held.find((each) => isOf(each, event));
        if (held?.trigger !== trigger || held.version !== context.version) return false;
        return lacking(host, context, held.event, conditions).length === 0;
      },
    },
    actions: {
      moved: assign(({ context }) => ({ version: context.version + 1, answer: { status: "applied" } })),
      refuse: assign(({ context, event }, { state }) => ({ answer: refusal(host, context, event, state) })),
      settled: assign(({ context, event }) => ({ held: context.held.filter((each) => !isOf(each, event)) })),
      hold: enqueueActions(({ context, event, enqueue }, { state, ...approval }) => {
        const request = { trigger: event.type, version: context.version };
        if (context.held.some((each) => isOf(each, request))) {
          const answer = { status: "rejected", code: "already_held", missing: [], legal: legal(state) };
          enqueue.assign({ answer });
        } else {
          const answer = { status: "waiting", code: "approval", version: context.version };
          enqueue.assign({ held: [...context.held, { ...request, event }], answer });
          enqueue(() => host.ask({ ...approval, ...request, by: event.by }));
        }
      }),
      fire_deadline: raise((_, { trigger }) => ({ type: trigger, by: "system", authority: "machinery", data: {} })),
      effect: ({ context }, effect) => host.effect({ ...effect, version: context.version }),
      follow_up: ({ context }, followUp) => host.followUp({ ...followUp, version: context.version }),
    },
    delays: Object.fromEntries(
      Object.entries(deadlines).map(([name, { seconds, key }]) => [
        name,
        ({ context }) => 1000 * (key !== null && key in context.input ? context.input[key] : seconds),
      ]),
    ),
  }).createMachine({
    ...config,
    context: ({ input }) => ({ input: input ?? {}, version: 0, held: [], answer: null }),
  });
}

// Send an event. Returns {status: "applied" | "waiting" | "rejected" | "superseded", state} and, of a refusal, its code,
// the conditions that are missing, and the triggers that are legal.
export function fire(actor, host, event) {
  const { context, status, value } = actor.getSnapshot();
  if (status !== "active") return { ...refusal(host, context, event, value), state: value };
  actor.send(event);
  const after = actor.getSnapshot();
  return { ...after.context.answer, state: after.value };
}
