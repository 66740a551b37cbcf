// The marks that gauges show: the lane's own where the status names them, else the contract's defaults.

const DEFAULTS = {
  recover_below: 0.35,
  degrade_at: 0.7,
  trip_after: 200,
  drop_degrade: 0.1,
  drop_trip: 0.15,
  drop_stop: 0.2,
  drop_min_total: 100,
  backlog_bytes: 67_108_864,
};

/** @returns {typeof DEFAULTS} */
export const limitsOf = (lane) => ({ ...DEFAULTS, ...lane.limits });
