-- Subscriptions (docs/spec/subscription.md): how far each has delivered. A row follows its subscription's events, and goes with its end.
CREATE TABLE interlock.subscriptions (
    subscription_id uuid        PRIMARY KEY,
    state           varchar(10) NOT NULL CHECK (state IN ('active', 'paused')),
    xid             xid8        NOT NULL,            -- all events up to this place in commit order are delivered, or not wanted
    position        bigint      NOT NULL CHECK (position >= 0),
    delivered       bigint      NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- in vain, since the last success
    next_at         timestamptz NOT NULL DEFAULT now(),                    -- not tried before; after a success, the time of that
    failed_at       timestamptz,                     -- since when its endpoint takes nothing; NULL: it does
    answer          jsonb,                           -- the endpoint's last one, or why there was none
    answered_at     timestamptz,
    lease           uuid,                            -- of the worker that delivers
    lease_until     timestamptz,
    CHECK ((lease IS NULL) = (lease_until IS NULL)),
    CHECK ((attempts = 0) = (failed_at IS NULL))
);

-- Active subscriptions whose endpoint takes nothing (`failing`), and those with events that nobody delivers, each since when.
CREATE VIEW interlock.undelivered AS
SELECT s.subscription_id, s.failed_at IS NOT NULL AS failing, COALESCE(s.failed_at, GREATEST(s.next_at, ahead.created_at)) AS since
  FROM interlock.subscriptions s
  LEFT JOIN LATERAL (SELECT t.created_at FROM interlock.every_transition t WHERE (t.xid, t.position) > (s.xid, s.position)
                      ORDER BY t.xid, t.position LIMIT 1) ahead ON true
 WHERE s.state = 'active'
   AND (s.failed_at IS NOT NULL OR ahead.created_at IS NOT NULL AND (s.lease_until IS NULL OR s.lease_until < now()));

-- How many subscriptions are in a state; of the active, how many fail, and how many nobody delivers (`idle`), for so long.
CREATE FUNCTION interlock.count_subscriptions(seconds double precision) RETURNS TABLE (status text, subscriptions bigint)
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT v.status, v.number
      FROM (SELECT count(*) FILTER (WHERE s.state = 'active') AS active, count(*) FILTER (WHERE s.state = 'paused') AS paused,
                   count(*) FILTER (WHERE u.failing) AS failing, count(*) FILTER (WHERE NOT u.failing) AS idle
              FROM interlock.subscriptions s
              LEFT JOIN interlock.undelivered u
                     ON u.subscription_id = s.subscription_id AND u.since < now() - make_interval(secs => seconds)) c,
           LATERAL (VALUES ('active', c.active), ('paused', c.paused), ('failing', c.failing), ('idle', c.idle)) AS v (status, number);
END $$;

-- A delivery begins with the first transaction that has not ended, so none that commits later is left out (SUBSCRIPTION-4). Whoever delivers
-- meanwhile loses its lease: what it reports any more says nothing of the place that a replay went back to.
CREATE FUNCTION interlock.moved_subscription(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said CONSTANT jsonb := new.metadata->'after';
    here interlock.subscriptions;
BEGIN
    SELECT * INTO here FROM interlock.subscriptions WHERE subscription_id = new.workflow_id FOR UPDATE;
    CASE
    WHEN new.to_state = 'removed' THEN
        DELETE FROM interlock.subscriptions WHERE subscription_id = new.workflow_id;
    WHEN new.trigger = 'activate' THEN
        INSERT INTO interlock.subscriptions (subscription_id, state, xid, position)
        VALUES (new.workflow_id, new.to_state, pg_snapshot_xmin(pg_current_snapshot()), 0);
    WHEN new.trigger IN ('replay', 'skip') THEN
        IF ((said->>'xid') || '-' || (said->>'position') ~ '^[0-9]{1,19}-[0-9]{1,18}$') IS NOT TRUE
           OR (((said->>'xid')::xid8, (said->>'position')::bigint) < (here.xid, here.position)) <> (new.trigger = 'replay') THEN
            RAISE EXCEPTION '% of a subscription goes %, and not to %', new.trigger,
                CASE new.trigger WHEN 'replay' THEN 'back' ELSE 'on' END, COALESCE(said::text, 'no place')
                USING ERRCODE = 'check_violation', CONSTRAINT = 'judged', HINT = 'interlock subscription replay NAME --from EVENT';
        END IF;
        UPDATE interlock.subscriptions
           SET xid = (said->>'xid')::xid8, position = (said->>'position')::bigint, lease = NULL, lease_until = NULL,
               attempts = 0, failed_at = NULL, next_at = new.created_at
         WHERE subscription_id = new.workflow_id;
    ELSE
        UPDATE interlock.subscriptions
           SET state = new.to_state, lease = NULL, lease_until = NULL, attempts = 0, failed_at = NULL, next_at = new.created_at
         WHERE subscription_id = new.workflow_id;
    END CASE;
END $$;

-- SUBSCRIPTION-1: a subscription's row stands as long as its history says, in the state that this says. It goes back only by a replay.
CREATE FUNCTION interlock.subscription_in_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its  CONSTANT interlock.subscriptions := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    last CONSTANT interlock.workflow_transitions := (SELECT t FROM interlock.workflow_transitions t
                                                      WHERE t.workflow_id = its.subscription_id AND t.workflow_type = 'subscription'
                                                      ORDER BY t.seq DESC LIMIT 1);
BEGIN
    IF last.to_state IS DISTINCT FROM (CASE TG_OP WHEN 'DELETE' THEN 'removed' ELSE its.state END)
       OR TG_OP = 'UPDATE' AND (OLD.subscription_id <> NEW.subscription_id
                                OR (NEW.xid, NEW.position) < (OLD.xid, OLD.position)
                                   AND (last.trigger, last.metadata->'after'->>'xid', last.metadata->'after'->>'position')
                                       IS DISTINCT FROM ('replay', NEW.xid::text, NEW.position::text)) THEN
        RAISE EXCEPTION 'the subscription % would not be what its history says', its.subscription_id
            USING ERRCODE = 'check_violation', HINT = 'Change it instead: interlock subscription pause | resume | replay | remove';
    END IF;
    RETURN its;
END $$;

CREATE TRIGGER subscription_in_history BEFORE INSERT OR UPDATE OF subscription_id, state, xid, position OR DELETE
    ON interlock.subscriptions FOR EACH ROW EXECUTE FUNCTION interlock.subscription_in_history();
